//! A missing right, as the API server's refusal names it, and the command that gives it.
//!
//! What it is not: a check of rights before a request. Only the API server knows them.

use kube::core::Status;
use std::error::Error;
use std::fmt;

/// What an account may not do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingRight {
    /// The account.
    pub user: String,
    /// The verb.
    pub verb: String,
    /// The resource in its plural, with its subresource if it has one, and its group: `machineconfigpools.example.com`,
    /// `pods/eviction`.
    pub resource: String,
    /// Where; `None`: in the whole cluster.
    pub namespace: Option<String>,
}

impl MissingRight {
    /// The right whose lack has caused this error. `None`: something else has, such as an admission policy.
    pub fn of(error: &(dyn Error + 'static)) -> Option<Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            let answer = error.downcast_ref::<kube::Error>();
            let answer = answer.or_else(|| error.downcast_ref::<Box<kube::Error>>().map(AsRef::as_ref));
            if let Some(kube::Error::Api(status)) = answer {
                return Self::of_status(status);
            }
            next = error.source();
        }
        None
    }

    /// Reads the API server's sentence: `User "U" cannot V resource "R" in API group "G" in the namespace "N"`, or `at the
    /// cluster scope`. Source: `forbiddenMessage` of Kubernetes' `apiserver`, which has not changed since 1.12.
    fn of_status(status: &Status) -> Option<Self> {
        if status.code != 403 {
            return None;
        }
        let (_, rest) = status.message.split_once("User \"")?;
        let (user, rest) = rest.split_once("\" cannot ")?;
        let (verb, rest) = rest.split_once(" resource \"")?;
        let (resource, rest) = rest.split_once("\" in API group \"")?;
        let (group, rest) = rest.split_once('"')?;
        let namespace =
            rest.strip_prefix(" in the namespace \"").and_then(|rest| Some(rest.split_once('"')?.0));
        let resource = match (group, resource.split_once('/')) {
            ("", _) => resource.to_owned(),
            (group, None) => format!("{resource}.{group}"),
            (group, Some((plural, sub))) => format!("{plural}.{group}/{sub}"),
        };
        Some(Self {
            user: user.to_owned(),
            verb: verb.to_owned(),
            resource,
            namespace: namespace.map(str::to_owned),
        })
    }

    /// The commands by which an administrator gives this right and no other.
    pub fn commands(&self) -> String {
        let Self { user, verb, resource, namespace } = self;
        let plain = |text: &str| text.replace(['.', '/', ':', '@'], "-");
        let name = format!("{}-{verb}", plain(resource.split('.').next().unwrap_or_default()));
        let to = match user.strip_prefix("system:serviceaccount:") {
            Some(account) => format!("--serviceaccount={account}"),
            None => format!("--user={user}"),
        };
        let (place, role) = match namespace {
            Some(namespace) => (format!(" -n {namespace}"), ""),
            None => (String::new(), "cluster"),
        };
        format!(
            "kubectl{place} create {role}role {name} --verb={verb} --resource={resource}; \
             kubectl{place} create {role}rolebinding {name} --{role}role={name} {to}"
        )
    }
}

impl fmt::Display for MissingRight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { user, verb, resource, namespace } = self;
        write!(f, "{user} may not {verb} {resource}")?;
        match namespace {
            Some(namespace) => write!(f, " in the namespace {namespace}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CallError;

    #[test]
    fn the_right_is_read_from_the_refusal_with_the_commands_that_give_it() {
        let refused = |message: &str| CallError::Api {
            what: "x".to_owned(),
            source: Box::new(kube::Error::Api(Box::new(
                Status::failure(message, "Forbidden").with_code(403),
            ))),
        };
        let rows = [
            (
                "machineconfigpools.machineconfiguration.openshift.io \"worker\" is forbidden: User \"jane\" cannot patch resource \
                 \"machineconfigpools/status\" in API group \"machineconfiguration.openshift.io\" at the cluster scope",
                "jane may not patch machineconfigpools.machineconfiguration.openshift.io/status",
                "kubectl create clusterrole machineconfigpools-patch --verb=patch \
                 --resource=machineconfigpools.machineconfiguration.openshift.io/status; \
                 kubectl create clusterrolebinding machineconfigpools-patch --clusterrole=machineconfigpools-patch --user=jane",
            ),
            (
                "secrets is forbidden: User \"system:serviceaccount:a:b\" cannot list resource \"secrets\" in API group \"\" in the \
                 namespace \"c\": RBAC: role.rbac.authorization.k8s.io \"d\" not found",
                "system:serviceaccount:a:b may not list secrets in the namespace c",
                "kubectl -n c create role secrets-list --verb=list --resource=secrets; \
                 kubectl -n c create rolebinding secrets-list --role=secrets-list --serviceaccount=a:b",
            ),
        ];
        for (message, words, commands) in rows {
            let found = MissingRight::of(&refused(message)).unwrap();
            assert_eq!((found.to_string().as_str(), found.commands().as_str()), (words, commands));
        }
        let policy =
            "nodes \"n\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no";
        assert_eq!(MissingRight::of(&refused(policy)), None);
        let escalation =
            "clusterroles \"r\" is forbidden: user \"u\" (groups=[]) is attempting to grant RBAC permissions";
        assert_eq!(MissingRight::of(&refused(escalation)), None, "no single right");
    }
}
