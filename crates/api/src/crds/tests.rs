//! Tests of the definitions.

use super::*;

#[test]
fn our_types_have_no_field_that_the_published_schemas_lack() {
    assert_eq!(fields_unknown_to_the_schemas().unwrap(), Vec::<String>::new());
}

#[test]
fn ours_carry_descriptions_columns_and_short_names() {
    let all = all().unwrap();
    let pool = all.iter().find(|c| c.plural == "machineconfigpools").unwrap();
    let at = |p: &str| pool.object.pointer(p).cloned().unwrap_or_default();
    assert_eq!(at("/spec/names/shortNames/0"), "mcp");
    assert_eq!(at("/spec/versions/0/additionalPrinterColumns/0/name"), "Config");
    let paused = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/paused/description";
    assert!(at(paused).as_str().is_some_and(|d| d.contains("No node is moved")), "{}", at(paused));
    assert_eq!(all.iter().filter(|c| c.ours).count(), 14);
}

/// A definition that nobody lists would be neither installed nor described.
#[test]
fn every_kind_that_is_defined_here_is_served() {
    let mut folders = vec![std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/v1alpha1")];
    let mut defined = vec![];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(path).unwrap();
            let bodies = text.split("\nkind! {\n").skip(1);
            let names = bodies.filter_map(|body| body.lines().find_map(|line| line.strip_suffix(" {")));
            defined.extend(names.map(|name| name.trim().to_owned()));
        }
    }
    let all = all().unwrap();
    let mut served: Vec<&str> = all
        .iter()
        .filter(|crd| crd.group == v1alpha1::RolloutPolicy::DEFINITION.group)
        .map(Crd::kind)
        .collect();
    served.sort_unstable();
    defined.sort_unstable();
    assert_eq!(defined, served);
    assert!(served.contains(&"RolloutPolicy"), "{served:?}");
}

/// kubectl looks for a category first: `kubectl delete machineconfig NAME` would be about all kinds of the category.
#[test]
fn no_category_is_called_as_a_kind_is() {
    let all = all().unwrap();
    let texts = |crd: &Crd, path: &str| -> Vec<String> {
        let found = crd.object.pointer(path).cloned().unwrap_or_default();
        let list = found.as_array().cloned().unwrap_or_else(|| vec![found]);
        list.iter().filter_map(|v| v.as_str().map(str::to_owned)).collect()
    };
    let names = ["/spec/names/plural", "/spec/names/singular", "/spec/names/shortNames"];
    let names: Vec<String> =
        all.iter().flat_map(|crd| names.iter().flat_map(|path| texts(crd, path))).collect();
    let categories: Vec<String> = all.iter().flat_map(|crd| texts(crd, "/spec/names/categories")).collect();
    assert!(categories.contains(&"mco".to_owned()) && names.contains(&"machineconfig".to_owned()));
    assert_eq!(categories.iter().find(|category| names.contains(category)), None);
}

#[test]
fn objects_round_trip_through_their_types() {
    let text = "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfigPool\nmetadata: {name: p}\nspec:\n  maxUnavailable: 20%\n  machineConfigSelector: {matchLabels: {a: b}}\n";
    let pool: v1::MachineConfigPool = crate::formats::yaml::from_str(text).unwrap();
    let back = serde_json::to_value(&pool).unwrap();
    assert_eq!(back["kind"], "MachineConfigPool");
    assert_eq!(back["apiVersion"], "machineconfiguration.openshift.io/v1");
    assert_eq!(back["spec"]["maxUnavailable"], "20%");
    // A stored object may lack its spec. That must not end a watch.
    let bare: v1::MachineConfig = crate::formats::yaml::from_str("metadata: {name: x}").unwrap();
    assert_eq!(bare.spec, v1::MachineConfigSpec::default());
}
