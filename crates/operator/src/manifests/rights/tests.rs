//! Tests of `rights`: what no part may do, and that the operator has what it gives to the others.

use super::*;

/// All rules of a part, each with its namespace.
fn rules(part: &str, tokens: bool) -> Vec<(String, Value)> {
    rules_with(part, tokens, None)
}

/// The same where the ControllerConfig names this pull secret.
fn rules_with(part: &str, tokens: bool, pull_secret: Option<&PullSecret>) -> Vec<(String, Value)> {
    let all = [installer(pull_secret, &[], &[]), operands(tokens, pull_secret)].concat();
    let roles = all.into_iter().filter(|o| o["metadata"]["name"] == part);
    roles
        .flat_map(|o| {
            let namespace = o["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
            let rules = o["rules"].as_array().cloned().unwrap_or_default();
            rules.into_iter().map(move |r| (namespace.clone(), r))
        })
        .collect()
}

fn lists(value: &Value, word: &str) -> bool {
    value.as_array().is_some_and(|all| all.iter().any(|v| v == word))
}

#[test]
fn nothing_is_allowed_wholesale_and_secrets_only_by_name_or_where_nothing_else_is() {
    for part in [CONTROLLER, SERVER, OPERATOR] {
        let found = rules(part, true);
        assert!(found.len() > 3, "{part}");
        for (namespace, rule) in found {
            assert!(!rule.to_string().contains('*'), "{part}: {rule}");
            if !lists(&rule["resources"], "secrets") {
                continue;
            }
            let reads = ["get", "list", "watch"].iter().any(|v| lists(&rule["verbs"], v));
            let own =
                [api::first_boot::user_data::NAMESPACE, boot_token::NAMESPACE].contains(&namespace.as_str());
            // Whoever gives a right has it: the names of push secrets are people's.
            let gives =
                (part, namespace.as_str()) == (OPERATOR, NAMESPACE) && rule["verbs"] == json!(["get"]);
            assert!(
                own || gives || !reads || rule.get("resourceNames").is_some(),
                "{part} in {namespace:?}: {rule}"
            );
        }
    }
}

#[test]
fn the_dashboard_writes_what_its_actions_write_and_reads_no_secret_but_boot_tokens() {
    let all = dashboard();
    let mut writes = vec![];
    for role in &all {
        let place = role["metadata"]["namespace"].as_str().unwrap_or_default();
        for rule in role["rules"].as_array().into_iter().flatten() {
            assert!(!rule.to_string().contains('*'), "{rule}");
            let question = rule["resources"].to_string().contains("reviews");
            let reads = rule["verbs"].as_array().unwrap().iter().all(|v| READ.contains(&v.as_str().unwrap()));
            if !question && !reads {
                writes.push((
                    role["metadata"]["name"].as_str().unwrap(),
                    rule["resources"].clone(),
                    rule["verbs"].clone(),
                ));
            }
            assert!(!lists(&rule["resources"], "secrets") || place == boot_token::NAMESPACE, "{rule}");
            let masked = lists(&rule["resources"], "secrets/masked");
            assert!(!masked || rule["verbs"] == json!(["list"]), "{rule}");
            for whole in ["machineconfigs", "controllerconfigs", "pods", "events"] {
                let viewers = role["metadata"]["name"] == VIEWER;
                assert!(!viewers || !lists(&rule["resources"], whole), "people see it masked: {rule}");
            }
        }
    }
    let patch = |resource: &str| (DASHBOARD, json!([resource]), json!(["patch"]));
    assert_eq!(writes, [patch("machineconfigpools"), patch("nodes")]);
}

#[test]
fn without_tokens_the_server_reads_no_secret_and_writes_nothing() {
    // Reviews (TokenReview, SubjectAccessReview) are questions: they are created, but nothing is stored.
    let question = |rule: &Value| rule["resources"].to_string().contains("reviews");
    for (_, rule) in rules(SERVER, false).into_iter().filter(|(_, rule)| !question(rule)) {
        let verbs = rule["verbs"].as_array().unwrap();
        assert!(verbs.iter().all(|v| READ.contains(&v.as_str().unwrap())), "{rule}");
        assert!(!rule["resources"].to_string().contains("secrets"), "{rule}");
    }
    let patch = |rule: &Value| lists(&rule["verbs"], "patch");
    let writes: Vec<_> = rules(SERVER, true).into_iter().filter(|(_, r)| patch(r)).collect();
    let places: Vec<&str> = writes.iter().map(|(namespace, _)| namespace.as_str()).collect();
    assert_eq!(places, [boot_token::NAMESPACE]);
    assert!(writes.iter().all(|(_, rule)| rule["resources"] == json!(["secrets"])), "{writes:?}");
    let there = |o: &Value| o["metadata"]["namespace"] == boot_token::NAMESPACE;
    assert!(!operands(false, None).iter().any(there), "what an earlier setting left is pruned");
}

#[test]
fn tokens_of_the_old_namespace_are_reached_by_name_and_only_while_there_are_some() {
    let old = ["boot-token-1".to_owned(), "boot-token-2".to_owned()];
    // The rights to Secrets in the old namespace.
    let reach = |old: &[String]| -> Vec<(String, Value, Value)> {
        let all = [installer(None, old, &[]), operands(true, None)].concat();
        let here = |o: &&Value| o["metadata"]["namespace"] == boot_token::OLD_NAMESPACE;
        let bound = |role: &Value| {
            let binds = |o: &&Value| o["kind"] == "RoleBinding" && o["roleRef"]["name"] == *role;
            let binding = all.iter().filter(here).find(binds).unwrap();
            binding["subjects"][0]["name"].as_str().unwrap().to_owned()
        };
        let roles = all.iter().filter(here).filter(|o| o["kind"] == "Role");
        let rules = roles.flat_map(|o| {
            let who = bound(&o["metadata"]["name"]);
            o["rules"].as_array().unwrap().iter().map(move |rule| (who.clone(), rule))
        });
        let certificates = |rule: &Value| {
            let known = [api::first_boot::server_tls::CA, BOOTSTRAP_TOKEN, PULL_SECRET];
            known.iter().any(|name| lists(&rule["resourceNames"], name))
        };
        rules
            .filter(|(who, rule)| who != CONTROLLER && lists(&rule["resources"], "secrets"))
            .filter(|(_, rule)| !certificates(rule) && rule["verbs"] != json!(["create"]))
            // With this one the operator gives the rights to push secrets, whose names are people's.
            .filter(|(who, rule)| {
                !(who == OPERATOR && rule.get("resourceNames").is_none() && rule["verbs"] == json!(["get"]))
            })
            .map(|(who, rule)| (who, rule["resourceNames"].clone(), rule["verbs"].clone()))
            .collect()
    };
    assert_eq!(
        reach(&old),
        [
            (OPERATOR.to_owned(), json!(old), json!(["get", "patch", "delete"])),
            (SERVER.to_owned(), json!(old), json!(["get", "patch"])),
        ]
    );
    assert_eq!(reach(&[]), []);
    // In the new namespace it finishes the move; in the old one it deletes its own right to do so.
    let operator = rules(OPERATOR, true);
    let here = operator.iter().find(|(place, _)| place == boot_token::NAMESPACE).unwrap();
    assert!(["get", "create", "patch"].iter().all(|verb| lists(&here.1["verbs"], verb)), "{here:?}");
    for kind in ["roles", "rolebindings"] {
        let moving = |rule: &Value| lists(&rule["resourceNames"], TOKEN_MOVE);
        let found =
            operator.iter().find(|(_, rule)| lists(&rule["resources"], kind) && moving(rule)).unwrap();
        assert_eq!(found.1["resourceNames"], json!([TOKEN_MOVE, TOKEN_USE]));
        assert!(lists(&found.1["verbs"], "delete") && !lists(&found.1["verbs"], "create"), "{found:?}");
    }
}

#[test]
fn the_controller_reads_the_one_pull_secret_that_is_named() {
    let secrets = |at: Option<(&str, &str)>| -> Vec<(String, Value)> {
        let at = at.map(|(namespace, name)| (namespace.to_owned(), name.to_owned()));
        let roles = [operands(true, at.as_ref()), installer(at.as_ref(), &[], &[])]
            .concat()
            .into_iter()
            .filter(|o| o["kind"] == "Role" && o["metadata"]["name"] == CONTROLLER);
        let found = roles.flat_map(|o| {
            let namespace = o["metadata"]["namespace"].as_str().unwrap().to_owned();
            let rules = o["rules"].as_array().cloned().unwrap();
            rules
                .into_iter()
                .filter(|r| lists(&r["resources"], "secrets"))
                .map(move |r| (namespace.clone(), r["resourceNames"].clone()))
        });
        found.collect()
    };
    let here = |names: Value| (NAMESPACE.to_owned(), names);
    assert_eq!(secrets(None), [here(json!(["pull-secret"]))]);
    assert_eq!(secrets(Some((NAMESPACE, "mine"))), [here(json!(["pull-secret", "mine"]))]);
    assert_eq!(
        secrets(Some(("openshift-config", "mine"))),
        [here(json!(["pull-secret"])), ("openshift-config".to_owned(), json!(["mine"]))]
    );
}

/// Written by hand, because the rules are generated: what the controller may do with Secrets, Jobs and ConfigMaps of its namespace
/// grows only where somebody means it.
#[test]
fn the_controllers_rights_in_its_own_namespace_are_these() {
    let mut rights = std::collections::BTreeSet::new();
    for rule in controller_in_namespace(Some("mine")) {
        let texts = |key: &str| -> Vec<String> {
            serde_json::from_value(rule.get(key).cloned().unwrap_or_default()).unwrap_or_default()
        };
        let names = texts("resourceNames").join(",");
        for (group, resource) in texts("apiGroups")
            .iter()
            .flat_map(|g| texts("resources").into_iter().map(move |r| (g.clone(), r)))
        {
            rights.extend(texts("verbs").iter().map(|verb| format!("{verb} {group}/{resource} {names}")));
        }
    }
    let mut wanted = vec![
        "create coordination.k8s.io/leases ",
        "get coordination.k8s.io/leases machine-config-controller",
        "update coordination.k8s.io/leases machine-config-controller",
        "create /events ",
        "list /events ",
        "get /secrets pull-secret,mine",
        "list /secrets pull-secret,mine",
        "watch /secrets pull-secret,mine",
        "get batch/jobs ",
        "list batch/jobs ",
        "watch batch/jobs ",
        "create batch/jobs ",
        "delete batch/jobs ",
        "get /configmaps ",
        "create /configmaps ",
        "delete /configmaps ",
        "get /configmaps machine-os-images",
        "patch /configmaps machine-os-images",
    ];
    wanted.sort_unstable();
    assert_eq!(rights.iter().map(String::as_str).collect::<Vec<_>>(), wanted);
}

#[test]
fn the_operator_has_every_right_that_it_gives() {
    let covers = |mine: &Value, theirs: &Value| {
        let within = |key: &str| {
            theirs[key].as_array().into_iter().flatten().all(|v| lists(&mine[key], v.as_str().unwrap()))
        };
        let names = match (mine.get("resourceNames"), theirs.get("resourceNames")) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(_), Some(_)) => within("resourceNames"),
        };
        within("apiGroups") && within("resources") && within("nonResourceURLs") && names && within("verbs")
    };
    // Split into single rights, as the API server does for its check against privilege escalation.
    let single = |rule: &Value| -> Vec<Value> {
        let of = |key: &str| rule[key].as_array().cloned().unwrap_or_default();
        let mut all = vec![];
        let urls = of("nonResourceURLs")
            .into_iter()
            .map(|url| json!({"nonResourceURLs": [url], "verbs": rule["verbs"]}));
        all.extend(urls);
        for (group, resource, verb) in of("apiGroups").iter().flat_map(|g| {
            let pairs = of("resources")
                .into_iter()
                .flat_map(|r| of("verbs").into_iter().map(move |v| (r.clone(), v)));
            pairs.map(move |(r, v)| (g.clone(), r, v)).collect::<Vec<_>>()
        }) {
            let mut one = json!({"apiGroups": [group], "resources": [resource], "verbs": [verb]});
            if let Some(names) = rule.get("resourceNames") {
                one["resourceNames"] = names.clone();
            }
            all.push(one);
        }
        all
    };
    let in_ours = (NAMESPACE.to_owned(), "mine".to_owned());
    for pull_secret in [None, Some(&in_ours)] {
        let mine = rules_with(OPERATOR, true, pull_secret);
        let given = [
            operands(true, pull_secret),
            push_secrets(&["push".to_owned()].into()).to_vec(),
            super::super::agents::rights(),
            crate::monitoring::reader(),
            dashboard(),
        ]
        .concat();
        // It also keeps each of these objects: whoever adds a Role gives the operator the right to write it.
        for object in given.iter().filter(|o| o["kind"] == "Role" && o["metadata"]["namespace"] == NAMESPACE)
        {
            for kind in ["roles", "rolebindings"] {
                let name = object["metadata"]["name"].as_str().unwrap();
                let keeps = |(at, rule): &&(String, Value)| {
                    at == NAMESPACE && lists(&rule["resources"], kind) && lists(&rule["resourceNames"], name)
                };
                let rule = mine.iter().find(keeps).unwrap_or_else(|| panic!("{kind} {name}"));
                assert!(
                    ["get", "create", "patch", "delete"].iter().all(|verb| lists(&rule.1["verbs"], verb)),
                    "{rule:?}"
                );
            }
        }
        let mut checked = 0;
        for role in given.iter().filter(|o| ["Role", "ClusterRole"].contains(&o["kind"].as_str().unwrap())) {
            let place = role["metadata"]["namespace"].as_str().unwrap_or_default();
            for right in role["rules"].as_array().unwrap().iter().flat_map(single) {
                let held =
                    mine.iter().any(|(at, rule)| (at.is_empty() || at == place) && covers(rule, &right));
                assert!(held, "{} in {place:?}: {right}", role["metadata"]["name"]);
                checked += 1;
            }
        }
        assert!(checked > 100, "{checked}");
    }
}
