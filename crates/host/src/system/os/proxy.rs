//! The proxy that pulls of OS images go through: the cluster's, from the file that the container runtime reads too. Programs
//! inherit no environment, so they are given these variables and no others.
//!
//! Sources: systemd.exec(5),  and .

use crate::disk::root::Root;
use crate::system::os::OsError;

/// Written by the template `proxy.yaml`, in the form of `EnvironmentFile=` (systemd.exec(5)).
const FILE: &str = "/etc/mco/proxy.env";
const NAMES: [&str; 3] = ["HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"];

/// The variables. None of them: there is no proxy.
pub(super) fn environment(root: &Root) -> Result<Vec<(String, String)>, OsError> {
    Ok(variables(&root.text(FILE)?.unwrap_or_default()))
}

fn variables(text: &str) -> Vec<(String, String)> {
    let pairs = text.lines().filter_map(|line| line.trim().split_once('='));
    let known = pairs.filter(|(name, _)| NAMES.contains(name));
    known.map(|(name, value)| (name.to_owned(), unquoted(value).to_owned())).collect()
}

fn unquoted(value: &str) -> &str {
    let value = value.trim();
    ['"', '\''].iter().find_map(|q| value.strip_prefix(*q)?.strip_suffix(*q)).unwrap_or(value)
}

/// A text of a program without the proxy's address, which may hold a password.
pub(super) fn hidden(text: &str, environment: &[(String, String)]) -> String {
    let secret = environment.iter().filter(|(_, value)| value.contains('@'));
    secret.fold(text.to_owned(), |text, (name, value)| {
        let user = value.split_once("://").map_or(value.as_str(), |(_, rest)| rest);
        let user = user.rsplit_once('@').map_or(user, |(user, _)| user);
        let password = user.split_once(':').map_or(user, |(_, password)| password);
        let text = text.replace(value, &format!("({name})")).replace(user, "***");
        if password.len() > 2 { text.replace(password, "***") } else { text }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_the_template_is_read_and_nothing_else_of_it() {
        let text = "# The cluster's proxy, for EnvironmentFile= in units.\nHTTP_PROXY=http://p:3128\n\
            HTTPS_PROXY=\"http://u:hush@p:3128\"\nNO_PROXY='.svc,10.0.0.0/8'\nLD_PRELOAD=/x\nHTTP_PROXY\n";
        let got = variables(text);
        let want = [
            ("HTTP_PROXY", "http://p:3128"),
            ("HTTPS_PROXY", "http://u:hush@p:3128"),
            ("NO_PROXY", ".svc,10.0.0.0/8"),
        ];
        assert_eq!(got, want.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let said = hidden("proxyconnect http://u:hush@p:3128 (hush): refused by p:3128", &got);
        assert_eq!(said, "proxyconnect (HTTPS_PROXY) (***): refused by p:3128");
        assert_eq!(variables(""), []);
    }
}
