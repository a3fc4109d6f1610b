//! The packages of extensions and kernels of RHEL CoreOS, for which configs are written: one table for the config's check, for hosts
//! and for image builds. Pure.
//!
//! What it is not: how packages are installed, or the packages of other distributions (see `host`).
//!
//! Source: <https://github.com/openshift/machine-config-operator/blob/HEAD/docs/MachineConfiguration.md>.

use crate::os::DEFAULT_KERNEL;

/// An extension, or a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackageSet {
    /// Its name in a MachineConfig.
    pub name: &'static str,
    /// The packages that a host installs.
    pub packages: &'static [&'static str],
    /// The packages that image builds install in addition, as the reference's do. Its agent does not install these on a host.
    only_in_images: &'static [&'static str],
}

impl PackageSet {
    const fn new(name: &'static str, packages: &'static [&'static str]) -> Self {
        Self { name, packages, only_in_images: &[] }
    }

    const fn and_in_images(self, only_in_images: &'static [&'static str]) -> Self {
        Self { only_in_images, ..self }
    }

    /// The packages that an image build installs.
    pub fn packages_in_image(self) -> impl Iterator<Item = &'static str> {
        self.packages.iter().chain(self.only_in_images).copied()
    }
}

/// Every extension that the reference knows.
pub const EXTENSIONS: [PackageSet; 7] = [
    PackageSet::new("two-node-ha", &["pacemaker", "pcs", "fence-agents-all"]),
    PackageSet::new("ipsec", &["NetworkManager-libreswan", "libreswan"])
        .and_in_images(&["openvswitch3.5-ipsec"]),
    PackageSet::new("usbguard", &["usbguard"]),
    PackageSet::new("kerberos", &["krb5-workstation", "libkadm5"]),
    PackageSet::new("kernel-devel", &["kernel-devel", "kernel-headers"]),
    PackageSet::new("sandboxed-containers", &["kata-containers"]),
    PackageSet::new("sysstat", &["sysstat"]),
];

/// Every kernel type. The default is the image's own kernel: its packages are those that another kernel replaces.
pub const KERNELS: [PackageSet; 3] = [
    PackageSet::new(
        DEFAULT_KERNEL,
        &["kernel", "kernel-core", "kernel-modules", "kernel-modules-core", "kernel-modules-extra"],
    ),
    PackageSet::new("realtime", &["kernel-rt-core", "kernel-rt-modules", "kernel-rt-modules-extra"])
        .and_in_images(&["kernel-rt-kvm"]),
    PackageSet::new(
        "64k-pages",
        &["kernel-64k-core", "kernel-64k-modules", "kernel-64k-modules-core", "kernel-64k-modules-extra"],
    ),
];

/// The extension of this name, if the reference knows it.
#[must_use]
pub fn extension(name: &str) -> Option<PackageSet> {
    EXTENSIONS.into_iter().find(|set| set.name == name)
}

/// The kernel of this type.
#[must_use]
pub fn kernel(kernel_type: &str) -> Option<PackageSet> {
    KERNELS.into_iter().find(|set| set.name == kernel_type)
}

/// The names of all extensions that the reference knows, separated by commas.
#[must_use]
pub fn extension_names() -> String {
    EXTENSIONS.map(|set| set.name).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_get_what_hosts_get_and_every_kernel_type_has_packages() {
        assert_eq!(KERNELS.map(|set| set.name), crate::KERNEL_TYPES);
        let more = |set: PackageSet| set.packages_in_image().skip(set.packages.len()).collect::<Vec<_>>();
        let differ: Vec<_> =
            EXTENSIONS.into_iter().chain(KERNELS).filter(|set| !more(*set).is_empty()).collect();
        assert_eq!(differ.iter().map(|set| set.name).collect::<Vec<_>>(), ["ipsec", "realtime"]);
        assert_eq!(more(differ[0]), ["openvswitch3.5-ipsec"]);
        assert_eq!(extension("emacs"), None);
    }
}
