//! What a request to the API server needs: the verb, the object and the place, as a SubjectAccessReview asks for them. Pure.
//!
//! What it is not: who has that right (see `authorization`).
//!
//! Source: <https://kubernetes.io/docs/reference/access-authn-authz/authorization/#determine-the-request-verb>.

use crate::access::authentication::Person;
use http::{Method, Uri};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SubjectAccessReviewSpec,
};
use std::fmt;

/// What people may see on the page alone, masked: whole objects of these kinds can have secrets in them, and nobody needs those for
/// the page. So the page asks for a subresource [`MASKED`] of them, which no API server serves: with it, `kubectl` reads nothing.
pub(crate) const WITH_SECRETS: [(&str, &str); 4] = [
    (api::names::GROUP, "machineconfigs"),
    (api::names::GROUP, "controllerconfigs"),
    ("", "pods"),
    ("", "events"),
];
/// Of Secrets, the list of boot tokens alone: of them the page shows names and ends.
fn lists_tokens(verb: &str, group: &str, resource: &str, namespace: &str) -> bool {
    (verb, group, resource, namespace) == ("list", "", "secrets", api::first_boot::boot_token::NAMESPACE)
}

/// That subresource's name.
const MASKED: &str = "masked";

/// What a request to the API server needs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Right {
    /// Of objects.
    Objects {
        verb: String,
        group: String,
        version: String,
        resource: String,
        subresource: String,
        /// Empty: all, or it has none.
        namespace: String,
        /// Empty: all.
        name: String,
    },
    /// Of a path that is no object.
    Path { verb: String, path: String },
}

impl Right {
    /// To list all objects of a kind.
    pub(crate) fn list(group: &str, resource: &str) -> Self {
        let [verb, group, resource] = ["list", group, resource].map(str::to_owned);
        let [version, subresource, namespace, name] = [const { String::new() }; 4];
        Self::Objects { verb, group, version, resource, subresource, namespace, name }
    }

    /// What this request needs, as the API server reads it:
    /// <https://kubernetes.io/docs/reference/access-authn-authz/authorization/#determine-the-request-verb>. `None`: its path
    /// can be read in more than one way, which no name of an object makes necessary.
    pub(crate) fn of(method: &Method, uri: &Uri) -> Option<Self> {
        let odd = |segment: &str| ["", ".", ".."].contains(&segment);
        if uri.path().contains('%') || uri.path().split('/').skip(1).any(odd) {
            return None;
        }
        Some(Self::read(method, uri))
    }

    fn read(method: &Method, uri: &Uri) -> Self {
        let segments: Vec<&str> = uri.path().split('/').filter(|s| !s.is_empty()).collect();
        let (group, version, rest) = match &segments[..] {
            ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
            ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
            _ => {
                let verb = method.as_str().to_lowercase();
                return Self::Path { verb, path: uri.path().to_owned() };
            }
        };
        // `namespaces/NAME` is a namespace itself.
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            rest => ("", rest),
        };
        let at = |place: usize| rest.get(place).copied().unwrap_or_default();
        let (resource, name) = (at(0), at(1));
        let watches =
            uri.query().unwrap_or_default().split('&').any(|q| ["watch=true", "watch=1"].contains(&q));
        let verb = match (method.as_str(), name.is_empty()) {
            ("GET" | "HEAD", _) if watches => "watch",
            ("GET" | "HEAD", true) => "list",
            ("GET" | "HEAD", false) => "get",
            ("POST", _) => "create",
            ("PUT", _) => "update",
            ("PATCH", _) => "patch",
            ("DELETE", true) => "deletecollection",
            ("DELETE", false) => "delete",
            (other, _) => other,
        };
        let subresource = rest.get(2..).unwrap_or_default().join("/");
        let [verb, group, version, resource, namespace, name] =
            [verb, group, version, resource, namespace, name].map(str::to_owned);
        Self::Objects { verb, group, version, resource, subresource, namespace, name }
    }

    /// The right to see the same on the page alone; `None`: there is no such right.
    pub(crate) fn masked(&self) -> Option<Self> {
        let Self::Objects { verb, group, resource, subresource, namespace, .. } = self else { return None };
        let has_secrets = (WITH_SECRETS.contains(&(group, resource))
            || lists_tokens(verb, group, resource, namespace))
            && subresource.is_empty();
        let mut right = self.clone();
        if let Self::Objects { subresource, .. } = &mut right {
            MASKED.clone_into(subresource);
        }
        (has_secrets && !self.changes()).then_some(right)
    }

    /// Nothing is stored for a question about oneself.
    pub(crate) fn asks_who_i_am(&self) -> bool {
        matches!(self, Self::Objects { verb, group, resource, .. }
            if verb == "create" && group == "authentication.k8s.io" && resource == "selfsubjectreviews")
    }

    pub(crate) fn changes(&self) -> bool {
        let (Self::Objects { verb, .. } | Self::Path { verb, .. }) = self;
        !["get", "list", "watch", "head"].contains(&verb.as_str())
    }

    pub(crate) fn spec(&self, person: &Person) -> SubjectAccessReviewSpec {
        let given = |text: &String| (!text.is_empty()).then(|| text.clone());
        let mut spec = SubjectAccessReviewSpec {
            user: Some(person.name.clone()),
            uid: person.uid.clone(),
            groups: Some(person.groups.clone()),
            extra: Some(person.extra.clone()),
            ..SubjectAccessReviewSpec::default()
        };
        match self {
            Self::Path { verb, path } => {
                let path = NonResourceAttributes { path: Some(path.clone()), verb: Some(verb.clone()) };
                spec.non_resource_attributes = Some(path);
            }
            Self::Objects { verb, group, version, resource, subresource, namespace, name } => {
                spec.resource_attributes = Some(ResourceAttributes {
                    verb: Some(verb.clone()),
                    group: given(group),
                    version: given(version),
                    resource: Some(resource.clone()),
                    subresource: given(subresource),
                    namespace: given(namespace),
                    name: given(name),
                    ..ResourceAttributes::default()
                });
            }
        }
        spec
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path { verb, path } => write!(f, "{verb} {path}"),
            Self::Objects { verb, group, resource, subresource, namespace, name, .. } => {
                write!(f, "{verb} {resource}")?;
                for (mark, text) in [("/", subresource), (".", group), (" ", name)] {
                    if !text.is_empty() {
                        write!(f, "{mark}{text}")?;
                    }
                }
                if namespace.is_empty() { Ok(()) } else { write!(f, " in namespace {namespace}") }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_needs_the_right_that_the_api_server_would_ask_for() {
        let rows = [
            ("GET", "/api/v1/nodes", "list nodes"),
            ("GET", "/api/v1/nodes?limit=500&watch=true", "watch nodes"),
            ("GET", "/api/v1/nodes/n1", "get nodes n1"),
            ("PATCH", "/api/v1/nodes/n1?fieldManager=x", "patch nodes n1"),
            ("PATCH", "/api/v1/nodes/n1/status", "patch nodes/status n1"),
            ("GET", "/api/v1/namespaces/a/pods", "list pods in namespace a"),
            ("GET", "/api/v1/namespaces/a/pods/p/log", "get pods/log p in namespace a"),
            ("GET", "/api/v1/namespaces/a", "get namespaces a"),
            ("GET", "/api/v1/namespaces", "list namespaces"),
            ("DELETE", "/api/v1/namespaces/a/pods", "deletecollection pods in namespace a"),
            (
                "PUT",
                "/apis/machineconfiguration.openshift.io/v1/machineconfigpools/worker",
                "update machineconfigpools.machineconfiguration.openshift.io worker",
            ),
            (
                "POST",
                "/apis/policy/v1/namespaces/a/poddisruptionbudgets",
                "create poddisruptionbudgets.policy in namespace a",
            ),
            ("GET", "/apis/policy/v1", "get /apis/policy/v1"),
            ("GET", "/version", "get /version"),
        ];
        for (method, path, want) in rows {
            let right = Right::of(&method.parse().unwrap(), &path.parse().unwrap()).unwrap();
            assert_eq!(right.to_string(), want, "{method} {path}");
            assert_eq!(right.changes(), method != "GET", "{method} {path}");
        }
        for (path, masked) in [
            ("/api/v1/events", Some("list events/masked")),
            ("/api/v1/nodes", None),
            (
                "/api/v1/namespaces/machine-config-boot-tokens/secrets",
                Some("list secrets/masked in namespace machine-config-boot-tokens"),
            ),
            ("/api/v1/namespaces/machine-config-boot-tokens/secrets?watch=true", None),
            ("/api/v1/namespaces/machine-config-boot-tokens/secrets/a", None),
            ("/api/v1/namespaces/default/secrets", None),
            ("/api/v1/secrets", None),
        ] {
            let right = Right::of(&Method::GET, &path.parse().unwrap()).unwrap();
            assert_eq!(right.masked().map(|right| right.to_string()).as_deref(), masked, "{path}");
        }
        for odd in ["/api/v1//nodes", "/api/v1/nodes/../pods", "/api/v1/nodes/a%2Fstatus", "/api/v1/nodes/"] {
            assert_eq!(Right::of(&Method::GET, &odd.parse().unwrap()), None, "{odd}");
        }
    }
}
