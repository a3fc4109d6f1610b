//! The packages of kernels, and which kernel and extensions the packages are that rpm-ostree was asked for. Pure.
//!
//! Not here: the packages of extensions (see `extensions`).
//!
//! Source: rpm-ostree(1).

use desired::DEFAULT_KERNEL;
use desired::packages::KERNELS;

use crate::system::os::extensions::named_by;

/// The packages of the image's own kernel, which another kernel replaces.
pub(super) const KERNEL: &[&str] = KERNELS[0].packages;

/// The packages of a kernel type; none of the default, which is the image's.
pub(super) fn of_kernel(kernel_type: &str) -> &'static [&'static str] {
    let other = desired::packages::kernel(kernel_type).filter(|set| set.name != DEFAULT_KERNEL);
    other.map_or(&[], |set| set.packages)
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

/// The extensions whose packages were all asked for; packages of none are extensions of their own name.
pub(super) fn extensions(requested: &[String]) -> Vec<String> {
    let others: Vec<String> = requested.iter().filter(|p| !is_kernel(p)).cloned().collect();
    named_by(&others)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn packages_of_kernels_are_no_extensions() {
        let kernel = words("kernel-rt-core kernel-rt-modules usbguard");
        assert_eq!((kernel_type(&kernel), extensions(&kernel)), ("realtime", words("usbguard")));
        for name in desired::KERNEL_TYPES {
            assert_eq!(kernel_type(&words(&of_kernel(name).join(" "))), name);
        }
    }
}
