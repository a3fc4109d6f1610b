//! Chooses the back end that changes the operating system of a host. The known kinds of hosts are asked in a fixed order
//! whether this host is one of them. Each answers with the reason, so that `mco daemon plan` and the log can print why a
//! back end was or was not chosen.
//!
//! A new back end is an implementation of [`OsBackend`] and a row of [`KINDS`] at its place in the order, with the functions that
//! detect such a host and open the back end.
//!
//! Not here: what a back end does.

use std::fmt;

use serde::Serialize;

use crate::disk::root::Root;
use crate::paths::OSTREE_BOOTED;
use crate::system::os::loader::BootLoader;
use crate::system::os::ordinary::OrdinaryHost;
use crate::system::os::ostree::{Images, OstreeHost};
use crate::system::os::ostree_repository::CONTAINER;
use crate::system::os::rpm_ostree::RpmOstree;
use crate::system::os::{OsBackend, UNSUPPORTED, Unsupported};
use crate::system::programs::Programs;

/// Makes runners of the host's programs, for back ends that need one. `None`: they cannot be run, because the host's root
/// folder is not this process's own.
pub type Runners<'r> = &'r dyn Fn() -> Option<Box<dyn Programs>>;

/// Opens the back end of a kind of host. The error: why it cannot be used on this one.
type Open = fn(&Root, Runners<'_>) -> Result<Box<dyn OsBackend>, String>;

/// A kind of host.
struct Kind {
    name: &'static str,
    /// Whether the host is of this kind: how that was seen, or what it lacks.
    detect: fn(&Root) -> Result<String, String>,
    /// `None`: this version has no back end for such hosts.
    open: Option<Open>,
}

/// The kinds of hosts, in the order in which they are asked. A host with rpm-ostree or bootc has `ostree` too, and one with
/// rpm-ostree can change more than one with bootc.
const KINDS: [Kind; 4] = [
    Kind {
        name: "rpm-ostree",
        detect: |root| booted_from_ostree(root, "/usr/bin/rpm-ostree"),
        open: Some(rpm_ostree),
    },
    Kind { name: "bootc", detect: |root| booted_from_ostree(root, "/usr/bin/bootc"), open: Some(bootc) },
    Kind { name: "OSTree", detect: |root| booted_from_ostree(root, "/usr/bin/ostree"), open: Some(ostree) },
    Kind {
        name: "boot loader",
        detect: ordinary,
        open: Some(|root, runners| {
            Ok(Box::new(OrdinaryHost::new(root.clone(), runner(runners)?, runner(runners)?)))
        }),
    },
];

fn runner(runners: Runners<'_>) -> Result<Box<dyn Programs>, String> {
    runners().ok_or_else(|| "programs of the host cannot be started from here".to_owned())
}

fn rpm_ostree(root: &Root, runners: Runners<'_>) -> Result<Box<dyn OsBackend>, String> {
    Ok(Box::new(RpmOstree::new(root.clone(), runner(runners)?)))
}

/// bootc changes images. Kernel arguments are OSTree's, so that is needed too.
fn bootc(root: &Root, runners: Runners<'_>) -> Result<Box<dyn OsBackend>, String> {
    match root.found("/usr/bin/ostree") {
        Ok(found) if found.is_absent() => {
            Err("/usr/bin/ostree is missing, which sets kernel arguments; install it into the image"
                .to_owned())
        }
        Ok(_) => Ok(Box::new(OstreeHost::new(root.clone(), runner(runners)?, Images::Bootc))),
        Err(error) => Err(api::formats::text::chain(&error)),
    }
}

fn ostree(root: &Root, runners: Runners<'_>) -> Result<Box<dyn OsBackend>, String> {
    let images = match root.found(CONTAINER) {
        Ok(found) if found.is_absent() => Images::None,
        Ok(_) => Images::Container,
        Err(error) => return Err(api::formats::text::chain(&error)),
    };
    Ok(Box::new(OstreeHost::new(root.clone(), runner(runners)?, images)))
}

/// Every other host. Its kernel arguments may be set, if its boot loader is understood.
fn ordinary(root: &Root) -> Result<String, String> {
    match root.found(OSTREE_BOOTED) {
        Ok(found) if found.is_absent() => Ok(match BootLoader::detect(root) {
            Ok(name) => format!("it boots with {name}{}", OrdinaryHost::packages(root)),
            Err(why) => format!("{why}{}", OrdinaryHost::packages(root)),
        }),
        Ok(_) => Err(format!("there is {OSTREE_BOOTED}")),
        Err(error) => Err(api::formats::text::chain(&error)),
    }
}

fn booted_from_ostree(root: &Root, program: &str) -> Result<String, String> {
    for path in [OSTREE_BOOTED, program] {
        match root.found(path) {
            Ok(found) if found.is_absent() => return Err(format!("there is no {path}")),
            Ok(_) => {}
            Err(error) => return Err(api::formats::text::chain(&error)),
        }
    }
    Ok(format!("there are {OSTREE_BOOTED} and {program}"))
}

/// The answer of one kind of host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OsCandidate {
    /// The kind.
    pub kind: &'static str,
    /// Whether its back end was chosen.
    pub chosen: bool,
    /// Why, or why not.
    pub why: String,
}

/// Which back end was chosen, and why. Kinds after the chosen one were not asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct OsChoice {
    /// The answers, in order.
    pub candidates: Vec<OsCandidate>,
}

impl OsChoice {
    /// The name of the chosen back end. `None`: there is none for this host.
    #[must_use]
    pub fn chosen(&self) -> Option<&'static str> {
        self.candidates.iter().find(|a| a.chosen).map(|a| a.kind)
    }
}

impl fmt::Display for OsChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.chosen().map_or("no back end", |kind| kind))?;
        for (i, OsCandidate { kind, why, .. }) in self.candidates.iter().enumerate() {
            write!(f, "{}{kind}: {why}", if i == 0 { " (" } else { "; " })?;
        }
        f.write_str(if self.candidates.is_empty() { "" } else { ")" })
    }
}

/// Chooses the back end for a host. A host that no back end fits gets one that refuses every change, with the reason.
#[must_use]
pub fn choose_os(root: &Root, runners: Runners<'_>) -> (Box<dyn OsBackend>, OsChoice) {
    choose_from(&KINDS, root, runners)
}

fn choose_from(kinds: &[Kind], root: &Root, runners: Runners<'_>) -> (Box<dyn OsBackend>, OsChoice) {
    let mut choice = OsChoice::default();
    let mut refusal = None;
    for Kind { name, detect, open } in kinds {
        let why = match (detect(root), open) {
            (Err(why), _) => why,
            (Ok(seen), None) => {
                refusal.get_or_insert_with(|| {
                    format!(
                        "{name} changes it on this host, and this version has no back end for {name}; remove it from the \
                         MachineConfig, or set it with {name}"
                    )
                });
                format!("{seen}, but this version has no back end for it")
            }
            (Ok(seen), Some(open)) => match open(root, runners) {
                Ok(backend) => {
                    choice.candidates.push(OsCandidate { kind: name, chosen: true, why: seen });
                    return (backend, choice);
                }
                Err(why) => {
                    refusal.get_or_insert_with(|| format!("{name} changes it on this host, but {why}"));
                    format!("{seen}, but {why}")
                }
            },
        };
        choice.candidates.push(OsCandidate { kind: name, chosen: false, why });
    }
    (Box::new(Unsupported::new(refusal.unwrap_or_else(|| UNSUPPORTED.to_owned()))), choice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::root::Options;
    use crate::fault::NoFaults;
    use crate::system::fake_os::FakeOs;
    use crate::system::programs::HostPrograms;
    use desired::OsField;
    use std::sync::Arc;

    /// A host with these files.
    fn host(files: &[&str]) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        for file in files {
            let at = dir.path().join(file.trim_start_matches('/'));
            std::fs::create_dir_all(at.parent().unwrap()).unwrap();
            std::fs::write(at, "").unwrap();
        }
        let options = Options { sync: false, owners: false };
        let root = Root::open_with(dir.path(), options, Arc::new(NoFaults)).unwrap();
        (dir, root)
    }

    #[test]
    fn a_host_whose_back_end_cannot_be_used_is_told_which_kinds_were_asked_and_what_each_lacks() {
        let (_dir, root) = host(&[OSTREE_BOOTED, "/usr/bin/bootc"]);
        let (backend, choice) = choose_os(&root, &|| None);
        let said = "no back end (rpm-ostree: there is no /usr/bin/rpm-ostree; bootc: there are /run/ostree-booted and \
            /usr/bin/bootc, but /usr/bin/ostree is missing, which sets kernel arguments; install it into the image; \
            OSTree: there is no /usr/bin/ostree; boot loader: there is /run/ostree-booted)";
        assert_eq!((choice.to_string().as_str(), choice.chosen()), (said, None));
        for field in OsField::ALL {
            let why = backend.refuses(field).unwrap();
            assert!(why.contains("bootc changes it on this host, but"), "{field:?}: {why}");
        }
    }

    #[test]
    fn a_host_of_ostree_gets_the_back_end_that_can_change_most() {
        let all = [OSTREE_BOOTED, "/usr/bin/ostree", "/usr/bin/bootc", "/usr/bin/rpm-ostree"];
        for (files, name, images) in [
            (&all[..], "rpm-ostree", true),
            (&all[..3], "bootc", true),
            (&all[..2], "OSTree", false),
            (&[OSTREE_BOOTED, "/usr/bin/ostree", CONTAINER], "OSTree", true),
        ] {
            let (_dir, root) = host(files);
            let (backend, choice) = choose_os(&root, &|| Some(Box::new(HostPrograms)));
            assert_eq!((backend.name(), choice.chosen()), (name, Some(name)), "{choice}");
            assert_eq!(backend.refuses(OsField::Image).is_none(), images, "{files:?}");
            assert_eq!(backend.refuses(OsField::KernelArguments), None);
            let (_, without) = choose_os(&root, &|| None);
            assert_eq!(without.chosen(), None, "{without}");
        }
    }

    #[test]
    fn an_ordinary_host_is_told_for_each_field_what_it_would_need() {
        let (dir, root) = host(&["/usr/bin/rpm-ostree"]);
        let (backend, choice) = choose_os(&root, &|| Some(Box::new(HostPrograms)));
        assert_eq!(choice.chosen(), Some("boot loader"));
        let why = |field| backend.refuses(field).unwrap_or_default();
        assert_eq!(why(OsField::Image), UNSUPPORTED);
        assert!(why(OsField::KernelArguments).contains("no boot loader was found"), "{choice}");
        // Its boot partition may be mounted later.
        for (path, text) in
            [("boot/firmware/cmdline.txt", "rootwait"), ("proc/device-tree/model", "Raspberry Pi 5")]
        {
            let at = dir.path().join(path);
            std::fs::create_dir_all(at.parent().unwrap()).unwrap();
            std::fs::write(at, text).unwrap();
        }
        assert_eq!(backend.refuses(OsField::KernelArguments), None);
        let (_, choice) = choose_os(&root, &|| Some(Box::new(HostPrograms)));
        assert!(
            choice.to_string().ends_with("boot loader: it boots with Raspberry Pi firmware)"),
            "{choice}"
        );
    }

    #[test]
    fn the_first_kind_that_fits_and_opens_is_chosen_and_no_later_one_is_asked() {
        let (_dir, root) = host(&["/boot/loader"]);
        let yes: fn(&Root) -> Result<String, String> = |_| Ok("it looks like one".to_owned());
        let kinds = [
            Kind { name: "absent", detect: |_| Err("it does not".to_owned()), open: None },
            Kind {
                name: "read-only",
                detect: yes,
                open: Some(|_, _| Err("/boot is read-only; mount it writable".to_owned())),
            },
            Kind {
                name: "loader",
                detect: |root| match root.found("/boot/loader") {
                    Ok(found) if !found.is_absent() => Ok("there is /boot/loader".to_owned()),
                    _ => Err("there is none".to_owned()),
                },
                open: Some(|_, runners| {
                    assert!(runners().is_none());
                    Ok(Box::new(FakeOs::default()))
                }),
            },
            Kind { name: "later", detect: |_| panic!("a fitting one came before"), open: None },
        ];
        let (backend, choice) = choose_from(&kinds, &root, &|| None);
        assert_eq!((backend.name(), choice.chosen()), ("fake", Some("loader")));
        assert_eq!(
            choice.to_string(),
            "loader (absent: it does not; read-only: it looks like one, but /boot is read-only; mount it writable; \
             loader: there is /boot/loader)"
        );
        let (backend, choice) = choose_from(&kinds[..2], &root, &|| None);
        assert_eq!(choice.chosen(), None);
        let why = backend.refuses(OsField::KernelArguments).unwrap();
        assert!(why.contains("read-only changes it on this host, but /boot is read-only"), "{why}");
    }
}
