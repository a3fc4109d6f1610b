use super::*;

#[test]
fn all_of_the_plan_is_in_both_and_nothing_of_a_placeholder_is_left_in_the_chart() {
    let files = files().unwrap();
    let steps = Values::placeholders().plan().unwrap();
    let count = |prefix: &str, suffix: &str| -> usize {
        let texts = files
            .iter()
            .filter(|(path, _)| path.starts_with(prefix) && path.to_string_lossy().ends_with(suffix));
        texts.map(|(_, text)| text.lines().filter(|line| *line == "---").count()).sum()
    };
    let all = Values::placeholders().plan_with(&OPENSHIFT_NAMESPACES).unwrap();
    assert_eq!(
        all.len(),
        steps.len() + 8,
        "a Role with its binding in each namespace, and the pull secret's"
    );
    assert_eq!(count(helm::FOLDER, ".yaml"), all.len());
    assert_eq!(count("deploy/kustomize", ".yaml"), all.len());
    assert_eq!(count("deploy/kustomize/base", ".yaml"), steps.len());
    for (path, text) in files.iter().filter(|(path, _)| path.starts_with(helm::FOLDER)) {
        assert!(!text.contains("placeholder"), "{}", path.display());
    }
    let template = &files[&PathBuf::from("deploy/helm/mco/templates/mco.yaml")];
    for value in [
        ".Values.image",
        ".Values.apiServerURL",
        "  apiServer:\n    {{- with .Values.apiServerCA }}\n    caData: \"{{ b64enc . }}\"\n    {{- end }}\n    url: ",
        "\n  {{- with .Values.clusterDNSIP }}\n  clusterDNSIP: \"{{ . }}\"\n  {{- end }}\n",
        ".Values.configServer.access",
        "with .Values.configServer.proxyProtocolFrom",
        ".Values.monitoring.prometheus",
        ".Values.monitoring.dashboards",
    ] {
        assert!(template.contains(value), "{value}");
    }
    // The namespaces.
    assert!(template.matches("helm.sh/resource-policy: keep").count() >= 3, "{template}");
}

/// What is set there is the administrator's word, and so would stay when the cluster's own is another.
#[test]
fn neither_the_ca_nor_the_address_of_the_dns_service_is_set_unless_somebody_asks_for_it() {
    let files = files().unwrap();
    let base = &files[&PathBuf::from("deploy/kustomize/base/mco.yaml")];
    let values = &files[&PathBuf::from("deploy/helm/mco/values.yaml")];
    for field in ["caData", "clusterDNSIP"] {
        assert!(!base.contains(field), "{field}");
    }
    for value in ["\napiServerCA: \"\"\n", "\nclusterDNSIP: \"\"\n", "\n  proxyProtocolFrom: []\n"] {
        assert!(values.contains(value), "{value}: {values}");
    }
}
