//! The host's store of certificate authorities: which program adds new ones to it, and where it looks for them. Pure.
//!
//! Disruption policies say that a new authority takes effect with a restart of `coreos-update-ca-trust.service`, which
//! only CoreOS has. On other hosts the program that this service runs, or the distribution's own, is run once instead.
//!
//! Not here: which authorities there are. The config says that.
//!
//! Sources: update-ca-trust(8), update-ca-certificates(8).

use serde::Serialize;

use crate::disk::path_state::PathState;
use crate::disk::root::split;

/// The folder where configs put certificate authorities: that of Fedora and its family (update-ca-trust(8)).
const CONFIGURED: &str = "/etc/pki/ca-trust/source/anchors";

/// The prefix of our links' names, so that they never replace an authority of the host's own.
const LINK_PREFIX: &str = "mco-";

/// A program that updates the host's store of certificate authorities, and the folder that it reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TrustTool {
    /// Its path.
    pub program: String,
    /// The folder of authorities that an administrator adds.
    pub folder: String,
}

/// The known programs. The first one that exists is used: update-ca-trust(8); update-ca-certificates(8) of openSUSE,
/// which is recognised by its folder; the program of the same name of Debian and Alpine.
const KNOWN: [(&str, &str); 3] = [
    ("/usr/bin/update-ca-trust", CONFIGURED),
    ("/usr/sbin/update-ca-certificates", "/etc/pki/trust/anchors"),
    ("/usr/sbin/update-ca-certificates", "/usr/local/share/ca-certificates"),
];

impl TrustTool {
    /// The program of this host. `found` returns what exists at a path.
    pub(crate) fn find<E>(mut found: impl FnMut(&str) -> Result<PathState, E>) -> Result<Option<Self>, E> {
        for (program, folder) in KNOWN {
            let is_program = matches!(found(program)?, PathState::File { .. } | PathState::Link { .. });
            // Debian creates its folder only with the first authority.
            let reads = folder != "/etc/pki/trust/anchors" || matches!(found(folder)?, PathState::Dir { .. });
            if is_program && reads {
                return Ok(Some(Self { program: program.to_owned(), folder: folder.to_owned() }));
            }
        }
        Ok(None)
    }

    /// The link by which the program finds the authority that a config puts at `path`. `None`: it needs no link, or
    /// the path is not one of an authority.
    pub(crate) fn link(&self, path: &str) -> Option<String> {
        let (dir, name) = split(path).ok()?;
        (dir == CONFIGURED && self.folder != CONFIGURED)
            .then(|| format!("{}/{LINK_PREFIX}{name}", self.folder))
    }

    /// Whether the program reads `path`, directly or through a link.
    pub(crate) fn reads(&self, path: &str) -> bool {
        split(path).is_ok_and(|(dir, _)| dir == CONFIGURED || dir == self.folder)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use api::v1::MachineConfigSpec;
    use serde_json::json;

    use super::*;
    use crate::plan::facts::PathFacts;
    use crate::{Change, DisruptionPolicy, Facts, Names};

    const FILE: PathState =
        PathState::File { mode: 0o755, uid: 0, gid: 0, len: 1, sha256: String::new(), immutable: false };
    const DIR: PathState = PathState::Dir { mode: 0o755, uid: 0, gid: 0 };
    const CA: &str = "/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt";

    fn tool(there: &[(&str, &PathState)]) -> Option<TrustTool> {
        let found = |path: &str| {
            let found =
                there.iter().find(|(p, _)| *p == path).map_or(PathState::Absent, |(_, f)| (*f).clone());
            Ok::<_, Infallible>(found)
        };
        TrustTool::find(found).unwrap_or_else(|e| match e {})
    }

    #[test]
    fn each_family_of_distributions_has_its_program_and_folder() {
        let debian = ("/usr/sbin/update-ca-certificates", &FILE);
        for (there, link) in [
            (vec![("/usr/bin/update-ca-trust", &FILE), debian], None),
            (vec![debian, ("/etc/pki/trust/anchors", &DIR)], Some("/etc/pki/trust/anchors/mco-x.crt")),
            (vec![debian], Some("/usr/local/share/ca-certificates/mco-x.crt")),
        ] {
            let tool = tool(&there).unwrap();
            assert_eq!(tool.link("/etc/pki/ca-trust/source/anchors/x.crt").as_deref(), link);
            assert_eq!(tool.link("/etc/other/x.crt"), None);
        }
        assert_eq!(tool(&[]), None);
    }

    /// The steps that concern the host's store, for a change that adds or removes the authority.
    fn steps(facts: &Facts, adds: bool) -> Vec<String> {
        let spec = |files| MachineConfigSpec {
            config: Some(json!({"ignition": {"version": "3.5.0"}, "storage": {"files": files}})),
            ..MachineConfigSpec::default()
        };
        let with = spec(json!([{"path": CA, "contents": {"source": "data:,CA"}}]));
        let without = spec(json!([]));
        let (old, new) = if adds { (&without, &with) } else { (&with, &without) };
        let names = Names { current: "old".to_owned(), desired: "new".to_owned() };
        let plan = Change::parse(old, new, names).unwrap().plan(&DisruptionPolicy::default(), facts).unwrap();
        assert!(!plan.disruption.needs_reboot(), "{plan}");
        let steps = plan.steps.iter().map(ToString::to_string);
        steps.filter(|s| s.contains("ca-certificates") || s.contains("ca-trust.service")).collect()
    }

    #[test]
    fn a_new_ca_is_installed_by_the_hosts_program_where_it_has_no_service_for_it() {
        let debian = tool(&[("/usr/sbin/update-ca-certificates", &FILE)]);
        let link = "/usr/local/share/ca-certificates/mco-openshift-config-user-ca-bundle.crt";
        let mut facts = Facts { trust_tool: debian, ..Facts::default() };
        assert_eq!(
            steps(&facts, true),
            [format!("link {link} to {CA}"), "run /usr/sbin/update-ca-certificates".to_owned()]
        );
        facts.paths.insert(
            link.to_owned(),
            PathFacts::of(PathState::Link { target: CA.to_owned(), uid: 0, gid: 0 }, None),
        );
        facts.paths.insert(CA.to_owned(), PathFacts::of(FILE, None));
        assert_eq!(
            steps(&facts, false),
            [
                format!("remove {link} (no longer in the config)"),
                "run /usr/sbin/update-ca-certificates".to_owned()
            ]
        );
        let service = "coreos-update-ca-trust.service";
        let facts = Facts { unit_files: [service.to_owned()].into(), ..Facts::default() };
        assert_eq!(steps(&facts, true), [format!("restart {service}")]);
        assert!(steps(&Facts::default(), true).is_empty(), "a host with neither program");
    }

    fn config(files: &[(&str, &str)]) -> MachineConfigSpec {
        let file = |(path, text): &(&str, &str)| json!({"path": path, "contents": {"source": format!("data:,{text}")}});
        let files: Vec<_> = files.iter().map(file).collect();
        MachineConfigSpec {
            config: Some(json!({"ignition": {"version": "3.5.0"}, "storage": {"files": files}})),
            ..MachineConfigSpec::default()
        }
    }

    fn planned(facts: &Facts, old: &MachineConfigSpec, new: &MachineConfigSpec) -> Vec<String> {
        let names = Names { current: "old".to_owned(), desired: "new".to_owned() };
        let plan = Change::parse(old, new, names).unwrap().plan(&DisruptionPolicy::default(), facts).unwrap();
        plan.steps.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_ca_of_the_first_boot_or_of_an_update_with_reboot_is_installed_too() {
        const RUN: &str = "run /usr/sbin/update-ca-certificates";
        let debian = || tool(&[("/usr/sbin/update-ca-certificates", &FILE)]);
        let mut facts = Facts { trust_tool: debian(), ..Facts::default() };
        let record = crate::paths::CURRENT_CONFIG.to_owned();
        facts.paths.insert(record.clone(), PathFacts::of(FILE, None));
        let reboots = planned(&facts, &config(&[]), &config(&[(CA, "CA"), ("/etc/x", "x")]));
        assert_eq!(reboots.iter().filter(|s| *s == RUN).count(), 1, "{reboots:?}");
        // The program runs only once if the policy asks for it as well.
        let alone = planned(&facts, &config(&[]), &config(&[(CA, "CA")]));
        assert_eq!(alone.iter().filter(|s| *s == RUN).count(), 1, "{alone:?}");
        let without = planned(&facts, &config(&[]), &config(&[("/etc/x", "x")]));
        assert!(!without.contains(&RUN.to_owned()), "{without:?}");
        // Ignition wrote the file before the first boot: no path differs, and no config was ever recorded.
        facts.paths.remove(&record);
        facts.trust_tool = tool(&[("/usr/bin/update-ca-trust", &FILE)]);
        let first = planned(&facts, &config(&[(CA, "CA")]), &config(&[(CA, "CA")]));
        assert!(first.contains(&"run /usr/bin/update-ca-trust".to_owned()), "{first:?}");
    }

    #[test]
    fn a_file_of_host_or_config_at_the_path_of_the_ca_link_stays() {
        let link = "/usr/local/share/ca-certificates/mco-corp.crt";
        let ca = "/etc/pki/ca-trust/source/anchors/corp.crt";
        let mut facts =
            Facts { trust_tool: tool(&[("/usr/sbin/update-ca-certificates", &FILE)]), ..Facts::default() };
        facts.paths.insert(link.to_owned(), PathFacts::of(FILE, None));
        let steps = planned(&facts, &config(&[]), &config(&[(ca, "CA")]));
        assert!(!steps.iter().any(|s| s.contains(&format!("link {link}"))), "{steps:?}");
        facts.paths.remove(link);
        let steps = planned(&facts, &config(&[]), &config(&[(ca, "CA"), (link, "CA")]));
        assert!(!steps.iter().any(|s| s.contains(&format!("link {link}"))), "{steps:?}");
    }
}
