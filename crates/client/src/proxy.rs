//! Which proxy leads to the API server: that of the kubeconfig (`proxy-url`), else that of the environment (`HTTPS_PROXY`,
//! `NO_PROXY`), as with kubectl. A loopback address is never behind the environment's proxy.
//!
//! The library looks at `HTTPS_PROXY` too, but compares `NO_PROXY` with the proxy's own name; [`settle_proxy`] puts that right.
//!
//! What it is not: proxies for pulls of images (see `host`).
//!
//! Source: <https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/> (`proxy-url`).

use hyper_util::client::proxy::matcher::Matcher;
use kube::Config;
use kube::config::Kubeconfig;

/// Whether the kubeconfig itself names a proxy for this context (`None`: its current one).
#[must_use]
pub fn names_proxy(kubeconfig: &Kubeconfig, context: Option<&str>) -> bool {
    let context = context.or(kubeconfig.current_context.as_deref());
    let context = kubeconfig.contexts.iter().find(|c| Some(c.name.as_str()) == context);
    let cluster = context.and_then(|c| c.context.as_ref()).map(|c| c.cluster.as_str());
    let cluster = kubeconfig.clusters.iter().find(|c| Some(c.name.as_str()) == cluster);
    let proxy = cluster.and_then(|c| c.cluster.as_ref()?.proxy_url.as_deref());
    proxy.is_some_and(|url| !url.is_empty())
}

/// Sets the proxy of a configuration that was read from a kubeconfig. `named`: see [`names_proxy`].
pub fn settle_proxy(config: &mut Config, named: bool) {
    if !named {
        settle(config, &Matcher::from_env());
    }
}

fn settle(config: &mut Config, environment: &Matcher) {
    let own = config.cluster_url.host().is_some_and(api::first_boot::user_data::is_loopback);
    match environment.intercept(&config.cluster_url).filter(|_| !own) {
        None => config.proxy_url = None,
        // With a name and password the library has read the address already, and knows them.
        Some(proxy) if config.proxy_url.is_none() && proxy.raw_auth().is_none() => {
            config.proxy_url = Some(proxy.uri().clone());
        }
        Some(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROXY: &str = "http://proxy.corp.example:3128/";

    #[test]
    fn the_environments_proxy_counts_where_the_kubeconfig_names_none_and_no_proxy_is_kept() {
        // Columns: the API server, NO_PROXY, what the library has taken, and whether the proxy is used.
        for (server, no_proxy, taken, used) in [
            ("https://api.example.com:6443", "", true, true),
            ("https://api.example.com:6443", "api.example.com", true, false),
            ("https://api.example.com:6443", ".example.com,10.0.0.0/8", true, false),
            ("https://10.0.0.10:6443", "10.0.0.0/8", true, false),
            // The library compares this with the proxy and takes none.
            ("https://api.example.com:6443", "proxy.corp.example", false, true),
            ("https://127.0.0.1:6443", "", true, false),
            ("https://[::1]:6443", "", true, false),
        ] {
            let mut config = Config::new(server.parse().unwrap());
            config.proxy_url = taken.then(|| PROXY.parse().unwrap());
            settle(&mut config, &Matcher::builder().https(PROXY).no(no_proxy).build());
            let url = config.proxy_url.map(|url| url.to_string());
            assert_eq!(url.as_deref(), used.then_some(PROXY), "{server} {no_proxy}");
        }
        let mut config = Config::new("https://api.example.com".parse().unwrap());
        settle(&mut config, &Matcher::builder().build());
        assert_eq!(config.proxy_url, None, "there is none");
    }

    #[test]
    fn the_kubeconfigs_own_proxy_is_that_of_the_context_in_use() {
        let kubeconfig = Kubeconfig::from_yaml(
            "{apiVersion: v1, kind: Config, current-context: a, \
             clusters: [{name: ca, cluster: {server: 'https://a', proxy-url: 'http://p:1'}}, {name: cb, cluster: {server: 'https://b'}}], \
             contexts: [{name: a, context: {cluster: ca, user: u}}, {name: b, context: {cluster: cb, user: u}}], users: [{name: u, user: {}}]}",
        )
        .unwrap();
        for (context, named) in [(None, true), (Some("a"), true), (Some("b"), false), (Some("c"), false)] {
            assert_eq!(names_proxy(&kubeconfig, context), named, "{context:?}");
        }
    }

    #[tokio::test]
    async fn a_client_can_be_made_for_an_api_server_behind_a_proxy() {
        let mut config = Config::new("https://api.example.com:6443".parse().unwrap());
        config.proxy_url = Some(PROXY.parse().unwrap());
        assert!(kube::Client::try_from(config).is_ok(), "the program is built without proxies");
    }
}
