//! The minimum TLS version and the cipher suites of kubelets, from the cluster's TLS profile. Pure.
//!
//! Source: <https://github.com/openshift/api/blob/HEAD/config/v1/types_tlssecurityprofile.go>.

use serde_json::Value;

/// The TLS versions and ciphers that a kubelet may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsProfile {
    /// `VersionTLS12` and so on.
    pub min_version: String,
    /// Suites by their IANA names.
    pub cipher_suites: Vec<String>,
}

/// OpenSSL's names and IANA's. Suites that kubelets do not know are missing here, and are dropped.
const SUITES: [(&str, &str); 20] = [
    ("TLS_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256"),
    ("TLS_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384"),
    ("TLS_CHACHA20_POLY1305_SHA256", "TLS_CHACHA20_POLY1305_SHA256"),
    ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"),
    ("ECDHE-RSA-AES128-GCM-SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
    ("ECDHE-ECDSA-AES256-GCM-SHA384", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"),
    ("ECDHE-RSA-AES256-GCM-SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"),
    ("ECDHE-ECDSA-CHACHA20-POLY1305", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
    ("ECDHE-RSA-CHACHA20-POLY1305", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
    ("ECDHE-ECDSA-AES128-SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256"),
    ("ECDHE-RSA-AES128-SHA256", "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256"),
    ("ECDHE-ECDSA-AES128-SHA", "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA"),
    ("ECDHE-RSA-AES128-SHA", "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA"),
    ("ECDHE-ECDSA-AES256-SHA", "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA"),
    ("ECDHE-RSA-AES256-SHA", "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA"),
    ("AES128-GCM-SHA256", "TLS_RSA_WITH_AES_128_GCM_SHA256"),
    ("AES256-GCM-SHA384", "TLS_RSA_WITH_AES_256_GCM_SHA384"),
    ("AES128-SHA256", "TLS_RSA_WITH_AES_128_CBC_SHA256"),
    ("AES128-SHA", "TLS_RSA_WITH_AES_128_CBC_SHA"),
    ("AES256-SHA", "TLS_RSA_WITH_AES_256_CBC_SHA"),
];
/// The last suite of the profile Old.
const TRIPLE_DES: (&str, &str) = ("DES-CBC3-SHA", "TLS_RSA_WITH_3DES_EDE_CBC_SHA");
/// How many of [`SUITES`] the profile Modern has.
const MODERN: usize = 3;
/// How many of [`SUITES`] the profile Intermediate has.
const INTERMEDIATE: usize = 9;

impl TlsProfile {
    fn first(count: usize, min_version: &str) -> Self {
        let cipher_suites = SUITES.iter().take(count).map(|(_, iana)| (*iana).to_owned()).collect();
        Self { min_version: min_version.to_owned(), cipher_suites }
    }

    /// The profile if nothing is configured.
    pub fn intermediate() -> Self {
        Self::first(INTERMEDIATE, "VersionTLS12")
    }

    /// From a `tlsSecurityProfile`; an unknown one counts as Intermediate.
    pub fn from_value(profile: &Value) -> Self {
        let text = |v: &Value, key: &str| v.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        match profile.get("type").and_then(Value::as_str) {
            Some("Modern") => Self::first(MODERN, "VersionTLS13"),
            Some("Old") => {
                let mut old = Self::first(SUITES.len(), "VersionTLS10");
                old.cipher_suites.push(TRIPLE_DES.1.to_owned());
                old
            }
            Some("Custom") => match profile.get("custom").filter(|c| c.is_object()) {
                None => Self::intermediate(),
                Some(custom) => {
                    let names = custom.get("ciphers").and_then(Value::as_array);
                    let names = names.into_iter().flatten().filter_map(Value::as_str);
                    Self {
                        min_version: text(custom, "minTLSVersion"),
                        cipher_suites: names.filter_map(iana).collect(),
                    }
                }
            },
            _ => Self::intermediate(),
        }
    }

    /// From the APIServer object `cluster`, if there is one.
    pub fn from_api_server(api_server: Option<&Value>) -> Self {
        api_server
            .and_then(|a| a.pointer("/spec/tlsSecurityProfile"))
            .map_or_else(Self::intermediate, Self::from_value)
    }
}

fn iana(openssl: &str) -> Option<String> {
    let mut all = SUITES.iter().chain([&TRIPLE_DES]);
    all.find(|(name, _)| *name == openssl).map(|(_, iana)| (*iana).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn profiles_map_to_what_kubelets_call_them() {
        let modern = TlsProfile::from_value(&json!({"type": "Modern", "modern": {}}));
        assert_eq!((modern.min_version.as_str(), modern.cipher_suites.len()), ("VersionTLS13", 3));
        let custom = json!({"type": "Custom", "custom": {"minTLSVersion": "VersionTLS11",
            "ciphers": ["ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES256-SHA384"]}});
        let custom = TlsProfile::from_value(&custom);
        assert_eq!(custom.min_version, "VersionTLS11");
        assert_eq!(custom.cipher_suites, ["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"]);
        assert_eq!(TlsProfile::from_value(&json!({"type": "Custom"})), TlsProfile::intermediate());
        assert_eq!(TlsProfile::from_api_server(None), TlsProfile::intermediate());
        assert_eq!(TlsProfile::from_value(&json!({"type": "Old"})).cipher_suites.len(), 21);
    }
}
