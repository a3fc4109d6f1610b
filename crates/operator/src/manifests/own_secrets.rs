//! The Secrets of the installation itself: keys, certificates and tokens. No image build gets one, and no MachineOSConfig gives the
//! controller a right to one. Pure.
//!
//! What it is not: the Secrets that the installation reads or writes elsewhere.

use crate::accounts::BOOTSTRAP_TOKEN;
use crate::monitoring;
use api::first_boot::boot_token;

/// Their names, besides those with [`ends`] and [`starts`].
const NAMES: [&str; 5] = [
    api::first_boot::server_tls::CA,
    api::first_boot::server_tls::SERVING,
    monitoring::CA,
    monitoring::READER,
    BOOTSTRAP_TOKEN,
];

/// The end of the names of the parts' certificates: `PART-metrics-tls`.
fn ends() -> String {
    monitoring::certificate("")
}

/// The beginning of the names of boot tokens, which earlier versions kept in the same namespace.
fn starts() -> &'static str {
    boot_token::NAME_PREFIX
}

/// Whether a Secret of this name is the installation's own.
pub(crate) fn is_own(name: &str) -> bool {
    NAMES.contains(&name) || name.ends_with(&ends()) || name.starts_with(starts())
}

/// The same, of an expression of CEL with the name.
pub(crate) fn is_own_in_cel(name: &str) -> String {
    let names = NAMES.map(|name| format!("'{name}'")).join(", ");
    let (ends, starts) = (ends(), starts());
    format!("({name} in [{names}] || {name}.endsWith('{ends}') || {name}.startsWith('{starts}'))")
}

/// Whether it is one of the certificates. Somebody else may have made it: ours have a label (see `certificates`).
pub(crate) fn is_certificate(name: &str) -> bool {
    let named = [api::first_boot::server_tls::CA, api::first_boot::server_tls::SERVING, monitoring::CA];
    named.contains(&name) || name.ends_with(&ends())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_certificates_and_tokens_are_the_installations_own() {
        for name in ["machine-config-server-ca", "machine-config-server-tls", "node-bootstrapper-token"] {
            assert!(is_own(name) && is_own_in_cel("n").contains(&format!("'{name}'")), "{name}");
        }
        for name in
            ["machine-config-operator-metrics-tls", "boot-token-0a", monitoring::CA, monitoring::READER]
        {
            assert!(is_own(name), "{name}");
        }
        let certificates =
            ["machine-config-server-ca", "machine-config-server-tls", monitoring::CA, "a-metrics-tls"];
        assert!(certificates.into_iter().all(|name| is_own(name) && is_certificate(name)));
        assert!(!is_certificate("node-bootstrapper-token") && !is_certificate("boot-token-0a"));
        for name in ["push", "", "pull-secret", "os-signing", "my-boot-token-1"] {
            assert!(!is_own(name), "{name}");
        }
    }
}
