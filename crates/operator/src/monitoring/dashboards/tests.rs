//! Tests of `dashboards`: models that Grafana accepts, and queries of metrics that exist.

use super::*;
use std::collections::BTreeSet;

/// The fields of each part of the model that these dashboards may use, and whether Grafana asks for them. Source: the
/// page that this file names, and the kind `dashboard` in Grafana's schemas.
const DASHBOARD: [(&str, bool); 12] = [
    ("uid", true),
    ("title", true),
    ("tags", false),
    ("editable", false),
    ("schemaVersion", true),
    ("refresh", false),
    ("timezone", false),
    ("time", true),
    ("templating", true),
    ("annotations", true),
    ("panels", true),
    ("graphTooltip", false),
];
const PANEL: [(&str, bool); 9] = [
    ("id", true),
    ("title", true),
    ("type", true),
    ("gridPos", true),
    ("datasource", true),
    ("fieldConfig", true),
    ("options", true),
    ("targets", true),
    ("description", false),
];
const TARGET: [(&str, bool); 7] = [
    ("refId", true),
    ("expr", true),
    ("datasource", true),
    ("legendFormat", false),
    ("instant", false),
    ("range", false),
    ("format", false),
];
const VARIABLE: [(&str, bool); 11] = [
    ("name", true),
    ("type", true),
    ("query", true),
    ("current", true),
    ("refresh", true),
    ("label", false),
    ("multi", false),
    ("includeAll", false),
    ("allValue", false),
    ("datasource", false),
    ("definition", false),
];
/// Panels that are part of every Grafana.
const KINDS: [&str; 3] = ["stat", "timeseries", "table"];
/// Units by their ids in Grafana's list of value formats.
const UNITS: [&str; 10] =
    ["short", "none", "s", "bytes", "Bps", "ops", "reqps", "percentunit", "dateTimeFromNow", "dateTimeAsIso"];
/// The columns of a dashboard.
const COLUMNS: u64 = 24;

fn keys(at: &str, value: &Value, known: &[(&str, bool)], faults: &mut Vec<String>) {
    let Some(map) = value.as_object() else { return faults.push(format!("{at} is no object")) };
    for key in map.keys().filter(|key| !known.iter().any(|(k, _)| k == key)) {
        faults.push(format!("{at}.{key} is unknown"));
    }
    for (key, _) in known.iter().filter(|(key, needed)| *needed && !map.contains_key(*key)) {
        faults.push(format!("{at}.{key} is missing"));
    }
}

/// The variables that a query names.
fn variables(expr: &str) -> Vec<String> {
    let word = |rest: &str| -> String {
        rest.trim_start_matches('{').chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    };
    expr.split('$').skip(1).map(word).collect()
}

/// What Grafana would refuse or show wrongly.
fn faults(model: &Value) -> Vec<String> {
    let mut out = vec![];
    keys("dashboard", model, &DASHBOARD, &mut out);
    let uid = model["uid"].as_str().unwrap_or_default();
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if uid.is_empty() || uid.len() > 40 || !uid.chars().all(plain) {
        out.push(format!("uid {uid:?}"));
    }
    if !model["schemaVersion"].as_u64().is_some_and(|v| (36..=42).contains(&v)) {
        out.push("schemaVersion".to_owned());
    }
    if !["", "browser", "utc"].contains(&model["timezone"].as_str().unwrap_or_default()) {
        out.push("timezone".to_owned());
    }
    if !["from", "to"].iter().all(|k| model["time"][k].as_str().is_some_and(|t| t.starts_with("now"))) {
        out.push("time".to_owned());
    }
    if !model["annotations"]["list"].is_array() {
        out.push("annotations.list".to_owned());
    }
    let mut declared = BTreeSet::new();
    for variable in model["templating"]["list"].as_array().into_iter().flatten() {
        let name = variable["name"].as_str().unwrap_or_default();
        keys(&format!("variable {name}"), variable, &VARIABLE, &mut out);
        if variable["refresh"].as_u64().is_none_or(|r| r > 2) {
            out.push(format!("variable {name}.refresh"));
        }
        match variable["type"].as_str() {
            Some("datasource") if variable["query"] == "prometheus" => {}
            // A query may name only what comes before it.
            Some("query") if declared.contains("datasource") && variable["query"]["query"].is_string() => {}
            other => out.push(format!("variable {name}.type {other:?}")),
        }
        if !declared.insert(name.to_owned()) {
            out.push(format!("variable {name} twice"));
        }
    }
    let source = |at: &str, value: &Value, out: &mut Vec<String>| {
        if value["datasource"] != json!({"type": "prometheus", "uid": "${datasource}"}) {
            out.push(format!("{at}.datasource"));
        }
    };
    let (mut ids, mut taken) = (BTreeSet::new(), BTreeSet::new());
    for panel in model["panels"].as_array().into_iter().flatten() {
        let at = format!("panel {:?}", panel["title"].as_str().unwrap_or_default());
        keys(&at, panel, &PANEL, &mut out);
        source(&at, panel, &mut out);
        if !panel["id"].as_u64().is_some_and(|id| id > 0 && ids.insert(id)) {
            out.push(format!("{at}.id"));
        }
        if !KINDS.contains(&panel["type"].as_str().unwrap_or_default()) {
            out.push(format!("{at}.type"));
        }
        let defaults = &panel["fieldConfig"]["defaults"];
        if !UNITS.contains(&defaults["unit"].as_str().unwrap_or_default())
            || !panel["fieldConfig"]["overrides"].is_array()
        {
            out.push(format!("{at}.fieldConfig {defaults}"));
        }
        let place = |key: &str| panel["gridPos"][key].as_u64();
        match (place("x"), place("y"), place("w"), place("h")) {
            (Some(x), Some(y), Some(w), Some(h)) if w > 0 && h > 0 && x + w <= COLUMNS => {
                let mut covers = false;
                for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
                    covers |= !taken.insert(cell);
                }
                if covers {
                    out.push(format!("{at} covers another"));
                }
            }
            _ => out.push(format!("{at}.gridPos")),
        }
        let mut letters = BTreeSet::new();
        for target in panel["targets"].as_array().into_iter().flatten() {
            keys(&at, target, &TARGET, &mut out);
            source(&at, target, &mut out);
            if !letters.insert(target["refId"].to_string()) {
                out.push(format!("{at}: refId twice"));
            }
            if target["instant"] == target["range"]
                || (panel["type"] == "table") != (target["format"] == "table")
            {
                out.push(format!("{at}: instant, range or format"));
            }
            let expr = target["expr"].as_str().unwrap_or_default();
            if expr.is_empty() {
                out.push(format!("{at}: no query"));
            }
            for name in variables(expr).into_iter().filter(|name| !declared.contains(name)) {
                out.push(format!("{at}: variable {name} is not declared"));
            }
        }
        if letters.is_empty() {
            out.push(format!("{at}: no query"));
        }
    }
    if ids.is_empty() {
        out.push("no panels".to_owned());
    }
    out
}

#[test]
fn dashboards_are_as_grafanas_model_says() {
    let all = dashboards();
    for dashboard in &all {
        assert_eq!(faults(&dashboard.model), Vec::<String>::new(), "{}", dashboard.name);
        assert_eq!(dashboard.model["uid"], dashboard.name);
    }
    // The check finds what is wrong.
    let good = all.iter().find(|d| d.name == "mco-rollout").unwrap();
    for (path, value, want) in [
        ("/uid", json!("a b"), "uid"),
        ("/schemaVersion", json!(7), "schemaVersion"),
        ("/panels/0/id", json!(2), ".id"),
        ("/panels/0/type", json!("graph"), ".type"),
        ("/panels/0/gridPos/w", json!(25), ".gridPos"),
        ("/panels/1/gridPos", good.model["panels"][0]["gridPos"].clone(), "covers another"),
        ("/panels/0/targets/0/expr", json!("up{pool=~\"$pools\"}"), "pools is not declared"),
        ("/panels/0/targets/0/datasource/uid", json!("prometheus-1"), ".datasource"),
        ("/panels/0/targets", json!([]), "no query"),
        ("/panels/0/fieldConfig/defaults/unit", json!("parsecs"), "fieldConfig"),
        ("/templating/list/0/refresh", json!("never"), "refresh"),
        ("/time/from", json!(0), "time"),
        ("/panels/0", json!({"yaxes": []}), "yaxes is unknown"),
    ] {
        let mut bad = good.model.clone();
        *bad.pointer_mut(path).unwrap() = value;
        let found = faults(&bad);
        assert!(found.iter().any(|f| f.contains(want)), "{path}: {want}: {found:?}");
    }
}
