//! The commands that bring a host of rpm-ostree from what it boots to what it should boot. Pure: values in, argument
//! lists out.
//!
//! Order: the image's own kernel comes back before the image changes, because packages of the old kernel do not fit
//! the new image. Then image, kernel arguments, the other kernel, extensions. Each command adds to what the one before
//! staged.
//!
//! Sources: rpm-ostree(1), <https://coreos.github.io/rpm-ostree/administrator-handbook/>.

use desired::DEFAULT_KERNEL;

use super::packages::{KERNEL, is_kernel, of_kernel};
use super::status::RpmDeployment;
use crate::system::os::Deployment;
use crate::system::os::arguments::argument_changes;
use crate::system::os::extensions::of_extensions;
use crate::system::os::reference::{Reference, same_image};

fn command<I: IntoIterator<Item = S>, S: Into<String>>(words: I) -> Vec<String> {
    words.into_iter().map(Into::into).collect()
}

/// Whether one of these commands, the first of which starts from `now`, needs repositories: it installs packages, or changes the image
/// below packages that stay, which rpm-ostree looks up again then. The other commands take packages from the host, unless a package
/// of the image was replaced by one of a repository (`override replace --from`): then every command looks up everything.
///
/// Source: `RPMOSTREE_SYSROOT_UPGRADER_FLAGS_PKGCACHE_ONLY` and its callers in <https://github.com/coreos/rpm-ostree>.
pub(super) fn need_repositories(commands: &[Vec<String>], now: &RpmDeployment) -> bool {
    let mut layered: Vec<&String> = now.requested_packages.iter().collect();
    let replaced = !now.requested_base_remote_replacements.is_empty();
    commands.iter().any(|command| {
        let verb = command.first().map(String::as_str).unwrap_or_default();
        let after = |option: &str| {
            let pairs = command.windows(2).filter(|pair| pair[0] == option).map(|pair| &pair[1]);
            pairs.collect::<Vec<_>>()
        };
        let gone = match verb {
            "uninstall" => command.iter().skip(1).collect(),
            _ => after("--uninstall"),
        };
        layered.retain(|package| !gone.contains(package));
        let again = (verb == "rebase" || replaced) && !layered.is_empty();
        verb == "install" || !after("--install").is_empty() || again
    })
}

/// What is fetched before the drain. It changes nothing that boots.
pub(super) fn fetch(now: &RpmDeployment, target: &Deployment) -> Vec<Vec<String>> {
    let mut out = Vec::new();
    if let Some(reference) = new_image(now, target) {
        out.push(rebase(["rebase", "--download-only", &reference], &packages(now, target).1));
    }
    let (added, _) = packages(now, target);
    if !added.is_empty() {
        let options = ["install", "--download-only", "--idempotent", "--allow-inactive"];
        out.push(command(options.map(str::to_owned).into_iter().chain(added)));
    }
    out
}

/// A command that changes the image, without the packages that go: rpm-ostree would look for them, and an extensions image of today
/// need not have them any more.
fn rebase<'a>(words: impl IntoIterator<Item = &'a str>, gone: &'a [String]) -> Vec<String> {
    let gone = gone.iter().flat_map(|p| ["--uninstall", p]);
    command(words.into_iter().chain(gone))
}

/// The reference of the new image, if there is one.
fn new_image(now: &RpmDeployment, target: &Deployment) -> Option<String> {
    let runs = now.deployment(Vec::new()).image;
    let changes = !target.image.is_empty() && !same_image(&target.image, &runs);
    changes.then(|| Reference::for_config(&target.image, now.reference().as_ref()).to_string())
}

/// The packages of extensions that come, and those that go.
fn packages(now: &RpmDeployment, target: &Deployment) -> (Vec<String>, Vec<String>) {
    let wanted = of_extensions(&target.extensions);
    let has: Vec<String> = now.requested_packages.iter().filter(|p| !is_kernel(p)).cloned().collect();
    let added = wanted.iter().filter(|p| !has.contains(p)).cloned().collect();
    let mut gone: Vec<String> = has.into_iter().filter(|p| !wanted.contains(p)).collect();
    gone.sort();
    (added, gone)
}

/// What stages the target on a host that would boot `now` with these kernel arguments.
pub(super) fn stage(now: &RpmDeployment, arguments: &[String], target: &Deployment) -> Vec<Vec<String>> {
    let mut out = Vec::new();
    let image = new_image(now, target);
    let kernel_now = super::packages::kernel_type(&now.requested_packages);
    let other_kernel = image.is_some() || kernel_now != target.kernel_type;
    if other_kernel && kernel_now != DEFAULT_KERNEL {
        let own = |p: &&String| *p == "kernel" || p.starts_with("kernel-");
        let removed: Vec<String> = now.requested_base_removals.iter().filter(own).cloned().collect();
        let layers = now.requested_packages.iter().filter(|p| is_kernel(p)).cloned();
        if removed.is_empty() {
            // Somebody has reset the image's own kernel already, and `override reset` takes no empty list.
            out.push(command(["uninstall", "--idempotent"].map(str::to_owned).into_iter().chain(layers)));
        } else {
            let layers = layers.flat_map(|layer| ["--uninstall".to_owned(), layer]);
            let first = ["override", "reset"].map(str::to_owned).into_iter();
            out.push(command(first.chain(removed).chain(layers)));
        }
    }
    let (packages_added, mut packages_gone) = packages(now, target);
    if let Some(reference) = &image {
        out.push(rebase(["rebase", reference], &packages_gone));
        packages_gone.clear();
    }
    let (gone, added) = argument_changes(arguments, &target.kernel_arguments);
    if !gone.is_empty() || !added.is_empty() {
        let gone = gone.iter().map(|a| format!("--delete-if-present={a}"));
        let added = added.iter().map(|a| format!("--append={a}"));
        out.push(command(["kargs".to_owned()].into_iter().chain(gone).chain(added)));
    }
    if other_kernel && target.kernel_type != DEFAULT_KERNEL {
        let mut words = command(["override", "remove"].into_iter().chain(KERNEL.iter().copied()));
        for layer in of_kernel(&target.kernel_type) {
            words.extend(["--install".to_owned(), (*layer).to_owned()]);
        }
        out.push(words);
    }
    if !packages_added.is_empty() {
        let mut words = command(["install", "--idempotent", "--allow-inactive"]);
        words.extend(packages_added);
        words.extend(packages_gone.iter().flat_map(|p| ["--uninstall".to_owned(), p.clone()]));
        out.push(words);
    } else if !packages_gone.is_empty() {
        out.push(command(["uninstall", "--idempotent"].map(str::to_owned).into_iter().chain(packages_gone)));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use desired::arguments;

    fn words(text: &str) -> Vec<String> {
        arguments(&[text.to_owned()])
    }

    fn now(image: &str, packages: &str, removals: &str) -> RpmDeployment {
        RpmDeployment {
            id: "a.0".to_owned(),
            booted: true,
            container_image_reference: Some(image.to_owned()),
            container_image_reference_digest: None,
            origin: None,
            checksum: "c".to_owned(),
            base_checksum: None,
            live_replaced: None,
            live_inprogress: None,
            custom_origin: None,
            requested_packages: words(packages),
            requested_base_removals: words(removals),
            requested_local_packages: Vec::new(),
            requested_local_fileoverride_packages: Vec::new(),
            requested_base_local_replacements: Vec::new(),
            requested_base_remote_replacements: Vec::new(),
        }
    }

    fn target(image: &str, arguments: &str, kernel_type: &str, extensions: &str) -> Deployment {
        Deployment {
            image: image.to_owned(),
            kernel_arguments: words(arguments),
            kernel_type: kernel_type.to_owned(),
            extensions: words(extensions),
        }
    }

    #[test]
    fn each_change_has_its_command_in_order() {
        let unverified = "ostree-unverified-registry:q.io/a:1";
        let rt = "kernel-rt-core kernel-rt-modules kernel-rt-modules-extra";
        let removed = "kernel kernel-core kernel-modules";
        let to_rt = "override remove kernel kernel-core kernel-modules kernel-modules-core kernel-modules-extra \
            --install kernel-rt-core --install kernel-rt-modules --install kernel-rt-modules-extra";
        let from_rt = "override reset kernel kernel-core kernel-modules --uninstall kernel-rt-core --uninstall \
            kernel-rt-modules --uninstall kernel-rt-modules-extra";
        for (about, has, arguments, wants, want) in [
            ("nothing", now(unverified, "", ""), "ro", target("q.io/a:1", "ro", "default", ""), vec![]),
            (
                "an image",
                now(unverified, "", ""),
                "ro",
                target("q.io/a:2", "ro", "default", ""),
                vec!["rebase ostree-unverified-registry:q.io/a:2"],
            ),
            (
                "an image of a host that verifies signatures",
                now("ostree-image-signed:docker://q.io/a:1", "", ""),
                "ro",
                target("q.io/a:2", "ro", "default", ""),
                vec!["rebase ostree-image-signed:registry:q.io/a:2"],
            ),
            (
                "arguments",
                now(unverified, "", ""),
                "ro a b=1 host",
                target("q.io/a:1", "ro host b=2 c", "default", ""),
                vec!["kargs --delete-if-present=a --delete-if-present=b=1 --append=b=2 --append=c"],
            ),
            (
                "a kernel",
                now(unverified, "", ""),
                "ro",
                target("q.io/a:1", "ro", "realtime", ""),
                vec![to_rt],
            ),
            (
                "a kernel is given up",
                now(unverified, rt, removed),
                "ro",
                target("q.io/a:1", "ro", "default", ""),
                vec![from_rt],
            ),
            (
                "a kernel whose place was given back by hand",
                now(unverified, "kernel-rt-core", ""),
                "ro",
                target("q.io/a:1", "ro", "default", ""),
                vec!["uninstall --idempotent kernel-rt-core"],
            ),
            (
                "an image below another kernel",
                now(unverified, rt, removed),
                "ro",
                target("q.io/a:2", "ro", "realtime", ""),
                vec![from_rt, "rebase ostree-unverified-registry:q.io/a:2", to_rt],
            ),
            (
                "extensions",
                now(unverified, "usbguard vim", "firefox"),
                "ro",
                target("q.io/a:1", "ro", "default", "vim kerberos"),
                vec!["install --idempotent --allow-inactive krb5-workstation libkadm5 --uninstall usbguard"],
            ),
            (
                "an image, and extensions come and go",
                now(unverified, "usbguard vim", ""),
                "ro",
                target("q.io/a:2", "ro", "default", "vim kerberos"),
                vec![
                    "rebase ostree-unverified-registry:q.io/a:2 --uninstall usbguard",
                    "install --idempotent --allow-inactive krb5-workstation libkadm5",
                ],
            ),
            (
                "extensions go",
                now(unverified, "usbguard vim", ""),
                "ro",
                target("q.io/a:1", "ro", "default", ""),
                vec!["uninstall --idempotent usbguard vim"],
            ),
        ] {
            let got: Vec<String> =
                stage(&has, &words(arguments), &wants).iter().map(|c| c.join(" ")).collect();
            assert_eq!(got, want, "{about}");
        }
    }

    #[test]
    fn repositories_are_needed_for_whatever_is_looked_up_again() {
        let unverified = "ostree-unverified-registry:q.io/a:1";
        let rt = "kernel-rt-core kernel-rt-modules kernel-rt-modules-extra";
        let removed = "kernel kernel-core";
        let replaced = |packages: &str| RpmDeployment {
            requested_base_remote_replacements: vec![("updates".to_owned(), vec!["glibc".to_owned()])],
            ..now(unverified, packages, "")
        };
        for (has, wants, before_drain, after) in [
            (now(unverified, "", ""), target("q.io/a:2", "ro x", "default", ""), false, false),
            (
                now(unverified, "usbguard", ""),
                target("q.io/a:1", "ro x", "default", "usbguard"),
                false,
                false,
            ),
            (now(unverified, "usbguard", ""), target("q.io/a:2", "ro", "default", "usbguard"), true, true),
            // What goes is taken away in the same command, and what is on the host already is not looked up.
            (now(unverified, "usbguard", ""), target("q.io/a:2", "ro", "default", ""), false, false),
            (now(unverified, "usbguard vim", ""), target("q.io/a:2", "ro", "default", "vim"), true, true),
            (now(unverified, "usbguard", ""), target("q.io/a:1", "ro", "default", ""), false, false),
            (now(unverified, "usbguard vim", ""), target("q.io/a:1", "ro", "default", "vim"), false, false),
            (now(unverified, "", ""), target("q.io/a:1", "ro", "realtime", ""), false, true),
            (now(unverified, rt, removed), target("q.io/a:2", "ro", "realtime", ""), true, true),
            // What is fetched is the image below the other kernel. Staging takes that kernel away before.
            (now(unverified, rt, removed), target("q.io/a:2", "ro", "default", ""), true, false),
            (now(unverified, rt, removed), target("q.io/a:1", "ro", "default", ""), false, false),
            (replaced("usbguard"), target("q.io/a:1", "ro x", "default", "usbguard"), false, true),
            (replaced(""), target("q.io/a:1", "ro x", "default", ""), false, false),
        ] {
            let staging = stage(&has, &words("ro"), &wants);
            let needs = (need_repositories(&fetch(&has, &wants), &has), need_repositories(&staging, &has));
            assert_eq!(needs, (before_drain, after), "{has:?} {wants:?}");
        }
    }

    #[test]
    fn what_needs_a_network_is_fetched_first() {
        let has = now("ostree-unverified-registry:q.io/a:1", "", "");
        let got: Vec<String> = fetch(&has, &target("q.io/a:2", "x", "default", "usbguard"))
            .iter()
            .map(|c| c.join(" "))
            .collect();
        assert_eq!(
            got,
            [
                "rebase --download-only ostree-unverified-registry:q.io/a:2",
                "install --download-only --idempotent --allow-inactive usbguard"
            ]
        );
        assert!(fetch(&has, &target("q.io/a:1", "x", "default", "")).is_empty());
    }
}
