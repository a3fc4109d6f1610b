//! The kubelet's first kubeconfig, which machines get from the cluster's server. Pure except [`Credentials::read`].
//!
//! Sources: <https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/>
//! and <https://kubernetes.io/docs/reference/access-authn-authz/kubelet-tls-bootstrapping/>.

use k8s_openapi::ByteString;
use serde_json::json;
use std::path::{Path, PathBuf};

/// The largest token or CA file that is read.
const MAX_FILE: u64 = 1 << 20;

/// The contents of the bootstrap token's Secret.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Credentials {
    /// The bearer token.
    pub token: String,
    /// The CA bundle beside it. The cluster's ConfigMap takes precedence.
    pub ca: Option<Vec<u8>>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials(…)")
    }
}

impl Credentials {
    /// Reads `token` and `ca.crt` from the directory where the Secret is mounted.
    ///
    /// # Errors
    /// Why there is no token, with the file's path.
    pub fn read(dir: &Path) -> Result<Self, String> {
        let path = dir.join("token");
        let bytes =
            read(&path).map_err(|e| format!("the bootstrap token {} cannot be read: {e}", path.display()))?;
        let token = String::from_utf8(bytes)
            .map_err(|_| format!("{} is not text", path.display()))?
            .trim()
            .to_owned();
        if token.is_empty() {
            return Err(format!("the bootstrap token {} is empty", path.display()));
        }
        Ok(Self { token, ca: read(&Self::ca_path(dir)).ok() })
    }

    fn ca_path(dir: &Path) -> PathBuf {
        dir.join("ca.crt")
    }
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    if std::fs::metadata(path)?.len() > MAX_FILE {
        return Err(std::io::Error::new(std::io::ErrorKind::FileTooLarge, "too large"));
    }
    std::fs::read(path)
}

/// The kubeconfig's text.
///
/// # Errors
/// There is no CA to verify the API server with. The text says where one is expected.
pub fn kubeconfig(server: &str, credentials: &Credentials, bundle: Option<&[u8]>) -> Result<Vec<u8>, String> {
    let ca = bundle.filter(|b| !b.is_empty()).or(credentials.ca.as_deref().filter(|b| !b.is_empty()));
    let ca = ca.ok_or(
        "there is no CA for the machines' kubeconfig, neither ca-bundle.crt in the ConfigMap kubeconfig-data nor \
        ca.crt beside the bootstrap token",
    )?;
    let value = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{
            "name": "local",
            "cluster": {"certificate-authority-data": ByteString(ca.to_vec()), "server": server},
        }],
        "users": [{"name": "kubelet", "user": {"token": credentials.token}}],
        "contexts": [{"name": "kubelet", "context": {"cluster": "local", "user": "kubelet"}}],
        "current-context": "kubelet",
    });
    // The serializer's error could quote the token.
    api::formats::yaml::to_string(&value)
        .map(String::into_bytes)
        .map_err(|_| "the kubeconfig cannot be written".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn mk(ca: Option<&[u8]>) -> Credentials {
        Credentials { token: "abc.def".to_owned(), ca: ca.map(<[u8]>::to_vec) }
    }

    #[test]
    fn the_clusters_bundle_goes_before_the_one_beside_the_token() {
        let ca = |credentials: &Credentials, bundle: Option<&[u8]>| {
            let text = kubeconfig("https://api:6443", credentials, bundle).unwrap();
            let read: Value = api::formats::yaml::from_str(std::str::from_utf8(&text).unwrap()).unwrap();
            assert_eq!(read["current-context"], "kubelet");
            assert_eq!(read["users"][0]["user"]["token"], "abc.def");
            assert_eq!(read["clusters"][0]["cluster"]["server"], "https://api:6443");
            let data = read["clusters"][0]["cluster"]["certificate-authority-data"].clone();
            serde_json::from_value::<ByteString>(data).unwrap().0
        };
        assert_eq!(ca(&mk(Some(b"file")), Some(b"map")), b"map");
        assert_eq!(ca(&mk(Some(b"file")), Some(b"")), b"file");
        assert_eq!(ca(&mk(None), Some(b"map")), b"map");
        assert!(kubeconfig("https://api:6443", &mk(None), None).unwrap_err().contains("ca-bundle.crt"));
    }

    #[test]
    fn a_token_that_is_not_there_is_named_by_its_path() {
        let dir = tempfile::tempdir().unwrap();
        let token = dir.path().join("token");
        assert!(Credentials::read(dir.path()).unwrap_err().contains(token.to_str().unwrap()));
        std::fs::write(&token, " \n").unwrap();
        assert!(Credentials::read(dir.path()).unwrap_err().contains("is empty"));
        std::fs::write(&token, "abc\n").unwrap();
        assert_eq!(Credentials::read(dir.path()).unwrap(), Credentials { token: "abc".to_owned(), ca: None });
        assert!(!format!("{:?}", Credentials::read(dir.path())).contains("abc"));
    }
}
