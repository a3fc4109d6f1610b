//! Which packages extensions are, and which extensions packages are. Pure. Any name that is not in the table of
//! [`desired::packages`] is the name of a package. Plans compare extensions by it, and so do back ends of distributions that have
//! these packages.
//!
//! Not here: kernels, and how packages are installed (see the back ends).
//!
//! Source: <https://github.com/openshift/machine-config-operator/blob/HEAD/docs/MachineConfiguration.md>.

use desired::packages::{EXTENSIONS, extension};

/// Whether a package is part of an extension of the reference's list.
pub(super) fn in_an_extension(package: &str) -> bool {
    EXTENSIONS.iter().any(|set| set.packages.contains(&package))
}

/// The packages of extensions, sorted.
pub(crate) fn of_extensions(extensions: &[String]) -> Vec<String> {
    let mut out = Vec::new();
    for name in extensions {
        match extension(name) {
            Some(set) => out.extend(set.packages.iter().map(|p| (*p).to_owned())),
            None => out.push(name.clone()),
        }
    }
    out.sort();
    out.dedup();
    out
}

/// Whether all packages of an extension are among those of these extensions.
pub(crate) fn is_within(extension: &String, these: &[String]) -> bool {
    let all = of_extensions(these);
    of_extensions(std::slice::from_ref(extension)).iter().all(|p| all.contains(p))
}

/// The extensions whose packages are all among these; packages of none are extensions of their own name.
pub(super) fn named_by(packages: &[String]) -> Vec<String> {
    let has = |package: &&str| packages.iter().any(|p| p == package);
    let whole: Vec<_> = EXTENSIONS.iter().filter(|set| set.packages.iter().all(&has)).collect();
    let in_one = |package: &String| whole.iter().any(|set| set.packages.contains(&package.as_str()));
    let names = whole.iter().map(|set| set.name.to_owned());
    names.chain(packages.iter().filter(|p| !in_one(p)).cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn packages_and_extensions_name_each_other() {
        for (names, packages) in [
            ("", ""),
            ("usbguard", "usbguard"),
            ("ipsec vim", "NetworkManager-libreswan libreswan vim"),
            ("kerberos sysstat", "krb5-workstation libkadm5 sysstat"),
        ] {
            assert_eq!(of_extensions(&words(names)), words(packages));
            assert_eq!(named_by(&words(packages)), words(names));
        }
        // Half of an extension is no extension.
        assert_eq!(named_by(&words("libreswan")), words("libreswan"));
        let (ipsec, half) = ("ipsec".to_owned(), words("libreswan"));
        assert!(is_within(&ipsec, &words("NetworkManager-libreswan libreswan")) && !is_within(&ipsec, &half));
        assert!(in_an_extension("libreswan") && !in_an_extension("vim"));
    }
}
