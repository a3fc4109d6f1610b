//! Kernel arguments as back ends read, compare and change them. Pure, except for reading `/proc/cmdline`.
//!
//! Not here: which arguments a boot loader would change (see `argument_rules`).
//!
//! Sources: bootparam(7), <https://docs.kernel.org/admin-guide/kernel-parameters.html>.

use desired::arguments;
use desired::mask::argument;

use crate::disk::root::Root;
use crate::system::os::{OsError, without};

/// The arguments that the running kernel was booted with.
pub(super) const CMDLINE: &str = "/proc/cmdline";

/// The running kernel's arguments, without those that a boot loader or OSTree adds itself.
pub(super) fn booted_arguments(root: &Root) -> Result<Vec<String>, OsError> {
    let text = root.text(CMDLINE)?.ok_or_else(|| OsError::new(format!("{CMDLINE} does not exist")))?;
    Ok(of_deployment(&text))
}

/// The arguments of a command line, without those that a boot loader or OSTree adds itself.
pub(super) fn of_deployment(text: &str) -> Vec<String> {
    let mut all = arguments(&[text.trim_end().to_owned()]);
    all.retain(|a| !["BOOT_IMAGE=", "initrd=", "ostree="].iter().any(|own| a.starts_with(own)));
    all
}

/// The arguments of the running deployment: those that it should have, as far as the kernel really has them. What a
/// person adds at the boot loader's prompt belongs to no deployment. What begins with `$` is a variable of the boot
/// loader, which nobody can look up.
pub(super) fn really_booted(should: &[String], runs: &[String]) -> Vec<String> {
    let mut left = runs.to_vec();
    let mut has = |a: &String| match left.iter().position(|b| a == b) {
        Some(at) => {
            left.remove(at);
            true
        }
        None => a.starts_with('$'),
    };
    should.iter().filter(|a| has(a)).cloned().collect()
}

/// What must be removed and what must be added at the end so that `now` becomes `to`. The arguments that stay are in
/// the order of both.
pub(super) fn argument_changes(now: &[String], to: &[String]) -> (Vec<String>, Vec<String>) {
    let mut rest = now.iter();
    let stay = to.iter().take_while(|a| rest.any(|b| b == *a)).count();
    let (stay, added) = to.split_at(stay);
    (without(now, stay), added.to_vec())
}

/// A text of a program, in which the secret values of its arguments are masked.
pub(super) fn without_secrets(text: &str, args: &[&str]) -> String {
    let mut out = text.to_owned();
    for arg in args {
        let value = arg.strip_prefix("--").and_then(|a| a.split_once('=')).map_or(*arg, |(_, value)| value);
        let shown = argument(value);
        if shown != value {
            out = out.replace(value, &shown);
            let secret = value.split_once('=').map_or("", |(_, secret)| secret);
            if secret.len() > 2 {
                out = out.replace(secret, "***");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        arguments(&[text.to_owned()])
    }

    #[test]
    fn removals_and_additions_give_the_wanted_list_in_its_order() {
        for (now, to, gone, added) in [
            ("ro a", "ro a", "", ""),
            ("ro a b", "ro b", "a", ""),
            ("ro a b", "ro b a", "a", "a"),
            ("hugepagesz=1G ro", "hugepagesz=1G ro hugepagesz=2M x=1", "", "hugepagesz=2M x=1"),
            ("a ro a", "a ro", "a", ""),
            ("", "a", "", "a"),
        ] {
            let changes = argument_changes(&words(now), &words(to));
            assert_eq!(changes, (words(gone), words(added)), "{now} -> {to}");
            let mut got = without(&words(now), &changes.0);
            got.extend(changes.1);
            assert_eq!(got, words(to));
        }
    }

    #[test]
    fn what_was_typed_at_the_prompt_is_not_the_deployments() {
        let should = words("root=1 $ignition_firstboot quiet a");
        let runs = of_deployment("BOOT_IMAGE=(hd0)/v root=1 ostree=/o a single\n");
        assert_eq!(really_booted(&should, &runs), words("root=1 $ignition_firstboot a"));
    }

    #[test]
    fn no_secret_of_an_argument_is_repeated() {
        let said = without_secrets(
            "No key 'password=hush' (hush)",
            &["kargs", "--append=password=hush", "--append=a=b"],
        );
        assert!(!said.contains("hush") && said.contains("No key"), "{said}");
        assert_eq!(without_secrets("a=b", &["--append=a=b"]), "a=b");
    }
}
