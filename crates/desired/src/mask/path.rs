//! Which paths hold contents that not everybody may read, whatever the mode of the file itself says.
//!
//! What it is not: a check of a host. The host adds the folders that it finds closed.

use ignition::Config;

/// The mode bit that lets everybody open what is in a folder.
const SEARCH: i64 = 0o001;

/// Folders that are closed by convention, with everything below: keys, credentials, homes, the agent's own records.
const FOLDERS: [&str; 35] = [
    "/root",
    "/var/roothome",
    "/home",
    "/var/home",
    "/etc/ssl/private",
    "/etc/pki/tls/private",
    "/etc/pki/entitlement",
    "/etc/pki/consumer",
    "/etc/kubernetes/pki",
    "/etc/kubernetes/static-pod-resources",
    "/var/lib/kubelet/pki",
    "/var/lib/kubelet/pods",
    "/var/lib/kubelet/plugins_registry",
    "/etc/etcd",
    "/var/lib/etcd",
    "/var/lib/rancher",
    "/etc/rancher",
    "/var/lib/k0s",
    "/etc/k0s",
    "/etc/NetworkManager/system-connections",
    "/etc/wireguard",
    "/etc/ipsec.d",
    "/etc/ppp",
    "/etc/wpa_supplicant",
    "/etc/iscsi",
    "/etc/sudoers.d",
    "/etc/credstore",
    "/etc/credstore.encrypted",
    "/run/credstore",
    "/run/credentials",
    "/run/secrets",
    "/etc/containers/systemd/secrets",
    crate::paths::DAEMON_DIR,
    crate::paths::STATE_DIR,
    "/etc/luks-keys",
];

/// Files that hold secrets.
const FILES: [&str; 13] = [
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/sudoers",
    "/etc/crypttab",
    "/etc/ipsec.secrets",
    "/etc/krb5.keytab",
    "/etc/rndc.key",
    crate::paths::PULL_SECRET,
    "/var/lib/kubelet/kubeconfig",
    "/etc/kubernetes/kubeconfig",
    crate::paths::INTERNAL_PULL_SECRET,
];

/// Endings of the names of files that hold keys.
const ENDINGS: [&str; 14] = [
    ".key",
    ".pem",
    ".p12",
    ".pfx",
    ".p8",
    ".jks",
    ".keystore",
    ".keytab",
    ".kdbx",
    ".gpg",
    ".asc",
    ".jwk",
    ".jwt",
    ".psk",
];

/// If a part of a path contains one of these, it names secrets.
const WORDS: [&str; 14] = [
    "secret",
    "passw",
    "passphrase",
    "token",
    "credential",
    "cookie",
    "private",
    "shadow",
    "kubeconfig",
    "keytab",
    "apikey",
    "api-key",
    "api_key",
    "vault",
];

/// Whole parts of a path that name secrets.
const PARTS: [&str; 26] = [
    ".ssh",
    ".gnupg",
    ".kube",
    ".docker",
    ".aws",
    ".azure",
    ".netrc",
    "netrc",
    ".pgpass",
    ".my.cnf",
    ".htpasswd",
    ".git-credentials",
    ".env",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    "key",
    "keys",
    "auth",
    "auth.json",
    "pass",
    "pwd",
    "pin",
    "psk",
    "admin.conf",
];

/// Whether secrets are kept at a path, judged only by its name.
#[must_use]
pub fn is_private_path(path: &str) -> bool {
    let below = |folder: &str| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
    if FILES.contains(&path) || FOLDERS.iter().any(|f| below(f)) {
        return true;
    }
    let lower = path.to_ascii_lowercase();
    lower.split('/').any(|part| {
        let stem = part.rsplit_once('.').map_or(part, |(stem, _)| stem);
        WORDS.iter().any(|w| part.contains(w))
            || PARTS.contains(&part)
            || PARTS.contains(&stem)
            || ENDINGS.iter().any(|e| part.ends_with(e))
    })
}

/// Which paths are private in a config, judged by their names and by the folders and links that the config makes.
#[derive(Clone, Debug, Default)]
pub struct Privacy {
    closed: Vec<String>,
    links: Vec<(String, String)>,
}

impl Privacy {
    /// Collects the folders and links of a config.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        let folders = config.storage.directories.iter();
        let closed = folders.filter(|d| d.mode.is_some_and(|m| m & SEARCH == 0)).map(|d| below(&d.path));
        let links = config.storage.links.iter();
        let links = links.filter_map(|l| Some((below(&l.path), below(l.target.as_deref()?))));
        Self { closed: closed.collect(), links: links.collect() }
    }

    /// Whether a folder above the path is closed.
    fn in_closed(&self, path: &str) -> bool {
        self.closed.iter().any(|folder| path.starts_with(folder))
    }

    /// Whether a path is private.
    #[must_use]
    pub fn is_private(&self, path: &str) -> bool {
        let private = |path: &str| is_private_path(path) || self.in_closed(path);
        private(path)
            || self.links.iter().any(|(link, target)| {
                path.strip_prefix(link.as_str()).is_some_and(|rest| private(&format!("{target}{rest}")))
            })
    }
}

/// A folder's path as the prefix of everything below it.
fn below(folder: &str) -> String {
    format!("{}/", folder.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn well_known_paths_and_suspicious_names_are_private() {
        for path in [
            "/root/x",
            "/home/core/x",
            "/etc/ssl/private/x",
            "/etc/kubernetes/pki/ca.crt",
            "/etc/NetworkManager/system-connections/wifi.nmconnection",
            "/etc/wireguard/wg0.conf",
            "/etc/shadow",
            "/etc/krb5.keytab",
            "/var/lib/kubelet/config.json",
            "/etc/mco/internal-registry-pull-secret.json",
            "/etc/app/tls.key",
            "/etc/app/server.PEM",
            "/etc/app/client_secret",
            "/etc/app/DB_PASSWORD",
            "/etc/app/api-token.txt",
            "/etc/app/auth.json",
            "/etc/app/key",
            "/etc/app/keys/a",
            "/opt/app/.env",
            "/etc/kubernetes/admin.conf",
            "/etc/machine-config-daemon/currentconfig",
        ] {
            assert!(is_private_path(path), "{path}");
        }
        for path in [
            "/etc/motd",
            "/etc/chrony.conf",
            "/etc/ssh/sshd_config.d/10-x.conf",
            "/etc/systemd/system/kubelet.service.d/10-x.conf",
            "/etc/containers/registries.conf",
            "/etc/containers/policy.json",
            "/etc/sysctl.d/99-keyboard.conf",
            "/etc/rootless",
            "/homework/x",
        ] {
            assert!(!is_private_path(path), "{path}");
        }
    }

    #[test]
    fn a_path_below_a_private_folder_or_behind_a_link_to_one_is_private() {
        let config = ignition::parse_value(&json!({"ignition": {"version": "3.5.0"}, "storage": {
            "directories": [{"path": "/etc/closed", "mode": 0o700}, {"path": "/etc/open", "mode": 0o755}, {"path": "/etc/plain"}],
            "links": [{"path": "/etc/in", "target": "/etc/closed/deep"}, {"path": "/etc/home", "target": "/root"}],
        }}));
        let privacy = Privacy::of(&config.unwrap().config);
        for (path, private) in [
            ("/etc/closed/a", true),
            ("/etc/closed/b/c", true),
            ("/etc/closedness", false),
            ("/etc/open/a", false),
            ("/etc/plain/a", false),
            ("/etc/in/a", true),
            ("/etc/home/a", true),
            ("/etc/inner", false),
        ] {
            assert_eq!(privacy.is_private(path), private, "{path}");
        }
    }
}
