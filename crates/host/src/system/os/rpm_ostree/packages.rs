//! The packages of extensions and of kernels. Pure tables: which names a config may give, and which packages rpm-ostree
//! is asked for. They are those of RHEL CoreOS; any other name of an extension is the name of a package.

use desired::DEFAULT_KERNEL;

/// The packages of the image's own kernel, which another kernel replaces.
pub(super) const KERNEL: [&str; 5] =
    ["kernel", "kernel-core", "kernel-modules", "kernel-modules-core", "kernel-modules-extra"];
const REALTIME: [&str; 3] = ["kernel-rt-core", "kernel-rt-modules", "kernel-rt-modules-extra"];
const LARGE_PAGES: [&str; 4] =
    ["kernel-64k-core", "kernel-64k-modules", "kernel-64k-modules-core", "kernel-64k-modules-extra"];

const EXTENSIONS: [(&str, &[&str]); 7] = [
    ("two-node-ha", &["pacemaker", "pcs", "fence-agents-all"]),
    ("ipsec", &["NetworkManager-libreswan", "libreswan"]),
    ("usbguard", &["usbguard"]),
    ("kerberos", &["krb5-workstation", "libkadm5"]),
    ("kernel-devel", &["kernel-devel", "kernel-headers"]),
    ("sandboxed-containers", &["kata-containers"]),
    ("sysstat", &["sysstat"]),
];

/// The packages of a kernel type; none of the default, which is the image's.
pub(super) fn of_kernel(kernel_type: &str) -> &'static [&'static str] {
    match kernel_type {
        "realtime" => &REALTIME,
        "64k-pages" => &LARGE_PAGES,
        _ => &[],
    }
}

/// The kernel type whose packages were asked for.
pub(super) fn kernel_type(requested: &[String]) -> &'static str {
    let has = |prefix: &str| requested.iter().any(|p| p.starts_with(prefix));
    match (has("kernel-rt-"), has("kernel-64k-")) {
        (true, _) => "realtime",
        (false, true) => "64k-pages",
        (false, false) => DEFAULT_KERNEL,
    }
}

/// Whether a package belongs to another kernel than the image's.
pub(super) fn is_kernel(package: &str) -> bool {
    package.starts_with("kernel-rt-") || package.starts_with("kernel-64k-")
}

/// Whether a package is part of an extension of the reference's list.
pub(super) fn in_an_extension(package: &str) -> bool {
    EXTENSIONS.iter().any(|(_, packages)| packages.contains(&package))
}

/// The packages of extensions, sorted.
pub(crate) fn of_extensions(extensions: &[String]) -> Vec<String> {
    let mut out = Vec::new();
    for name in extensions {
        match EXTENSIONS.iter().find(|(known, _)| known == name) {
            Some((_, packages)) => out.extend(packages.iter().map(|p| (*p).to_owned())),
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

/// The extensions whose packages were all asked for; packages of none are extensions of their own name.
pub(super) fn extensions(requested: &[String]) -> Vec<String> {
    let has = |p: &&str| requested.iter().any(|r| r == p);
    let whole: Vec<_> = EXTENSIONS.iter().filter(|(_, packages)| packages.iter().all(&has)).collect();
    let in_one = |p: &String| whole.iter().any(|(_, packages)| packages.contains(&p.as_str()));
    let names = whole.iter().map(|(name, _)| (*name).to_owned());
    let own = requested.iter().filter(|p| !is_kernel(p) && !in_one(p)).cloned();
    names.chain(own).collect()
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
            assert_eq!(extensions(&words(packages)), words(names));
        }
        // Half of an extension is no extension.
        assert_eq!(extensions(&words("libreswan")), words("libreswan"));
        let kernel = words("kernel-rt-core kernel-rt-modules usbguard");
        assert_eq!((kernel_type(&kernel), extensions(&kernel)), ("realtime", words("usbguard")));
        for name in desired::KERNEL_TYPES {
            assert_eq!(kernel_type(&words(&of_kernel(name).join(" "))), name);
        }
    }
}
