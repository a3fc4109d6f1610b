//! Turns mirrors, and blocked and insecure registries, into `registries.conf`, search registries and `policy.json`.
//! Pure.
//!
//! What it is not: what signature policies demand (see `signatures`).
//!
//! Sources: containers-registries.conf(5), containers-policy.json(5).

mod error;
pub(crate) mod mirrors;
mod policy;
mod scopes;
pub(crate) mod signatures;

pub use error::RegistriesError;
pub(crate) use policy::POLICY_JSON;

use crate::settings::registries::mirrors::{MirrorSets, MirrorUse};
use crate::settings::registries::policy::{ACCEPT_ANYTHING, policy};
use crate::settings::registries::scopes::{EffectiveScopes, check_scope, nested};
use crate::settings::registries::signatures::Signatures;
use api::formats::image_name::repository;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The path of the registries' settings on a host.
pub(crate) const REGISTRIES_CONF: &str = api::paths::REGISTRIES_CONF;
/// The path of the search registries on a host.
pub(crate) const SEARCH_CONF: &str = "/etc/containers/registries.conf.d/01-image-searchRegistries.conf";

/// The Image object's `spec.registrySources`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Sources {
    insecure: Option<Vec<String>>,
    blocked: Option<Vec<String>>,
    allowed: Option<Vec<String>>,
    search: Option<Vec<String>>,
}

impl Sources {
    /// Reads the Image object `cluster`.
    pub(crate) fn read(image: Option<&Value>) -> Result<Self, RegistriesError> {
        let sources = image.and_then(|i| i.pointer("/spec/registrySources"));
        let list = |key: &str| -> Option<Vec<String>> {
            let all = sources?.get(key)?.as_array()?;
            Some(all.iter().filter_map(Value::as_str).map(str::to_owned).collect())
        };
        let read = Self {
            insecure: list("insecureRegistries"),
            blocked: list("blockedRegistries"),
            allowed: list("allowedRegistries"),
            search: list("containerRuntimeSearchRegistries"),
        };
        for (name, scopes) in [
            ("insecureRegistries", &read.insecure),
            ("blockedRegistries", &read.blocked),
            ("allowedRegistries", &read.allowed),
        ] {
            for scope in scopes.iter().flatten() {
                check_scope(scope).map_err(|why| RegistriesError::Scope {
                    list: name,
                    scope: scope.clone(),
                    why,
                })?;
            }
        }
        Ok(read)
    }
}

/// One `[[registry]]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Registry {
    prefix: String,
    location: String,
    insecure: bool,
    blocked: bool,
    mirrors: Vec<Mirror>,
}

/// One `[[registry.mirror]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mirror {
    location: String,
    insecure: bool,
    pull: &'static str,
}

impl Registry {
    fn scope(&self) -> &str {
        if self.prefix.is_empty() { &self.location } else { &self.prefix }
    }
}

/// The parts of `registries.conf` that are written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Conf {
    search: Vec<String>,
    short_name_mode: String,
    registries: Vec<Registry>,
}

impl Conf {
    fn read(template: &str) -> Result<Self, RegistriesError> {
        let bad = |message: String| RegistriesError::Template { path: REGISTRIES_CONF, message };
        let table: toml::Table =
            template.parse().map_err(|e: toml::de::Error| bad(e.message().to_owned()))?;
        let text = |t: &toml::Table, key: &str| {
            t.get(key).and_then(toml::Value::as_str).unwrap_or_default().to_owned()
        };
        let flag = |t: &toml::Table, key: &str| t.get(key).and_then(toml::Value::as_bool).unwrap_or_default();
        let search = table.get("unqualified-search-registries").and_then(toml::Value::as_array);
        let registries = table.get("registry").and_then(toml::Value::as_array);
        let registries = registries.into_iter().flatten().filter_map(toml::Value::as_table);
        Ok(Self {
            search: search.into_iter().flatten().filter_map(toml::Value::as_str).map(str::to_owned).collect(),
            short_name_mode: text(&table, "short-name-mode"),
            registries: registries
                .map(|r| Registry {
                    prefix: text(r, "prefix"),
                    location: text(r, "location"),
                    insecure: flag(r, "insecure"),
                    blocked: flag(r, "blocked"),
                    mirrors: Vec::new(),
                })
                .collect(),
        })
    }

    /// The entry of a scope; it is added if it is missing.
    fn entry(&mut self, scope: &str) -> Option<&mut Registry> {
        let i = match self.registries.iter().position(|r| r.scope() == scope) {
            Some(i) => i,
            None => {
                let wildcard = scope.starts_with("*.");
                let (prefix, location) = if wildcard { (scope, "") } else { ("", scope) };
                let (prefix, location) = (prefix.to_owned(), location.to_owned());
                self.registries.push(Registry { prefix, location, ..Registry::default() });
                self.registries.len() - 1
            }
        };
        self.registries.get_mut(i)
    }

    fn edit(&mut self, insecure: &[String], blocked: &[String], mirrors: &MirrorSets) {
        for source in mirrors.sources() {
            let digest = mirrors.of(source, MirrorUse::Digest).into_iter().map(|m| (m, "digest-only"));
            let tag = mirrors.of(source, MirrorUse::Tag).into_iter().map(|m| (m, "tag-only"));
            let all = digest.chain(tag).map(|(location, pull)| Mirror { location, insecure: false, pull });
            if let Some(entry) = self.entry(source) {
                entry.mirrors.extend(all);
            }
        }
        let mut blocked = blocked.to_vec();
        blocked.extend(mirrors.never_contacted().map(str::to_owned));
        for scope in &blocked {
            self.entry(scope);
        }
        for scope in insecure {
            if let Some(entry) = self.entry(scope) {
                entry.insecure = true;
            }
            for r in &mut self.registries {
                r.insecure |= nested(r.scope(), scope);
                for m in &mut r.mirrors {
                    m.insecure |= nested(&m.location, scope);
                }
            }
        }
        for scope in &blocked {
            for r in &mut self.registries {
                r.blocked |= nested(r.scope(), scope);
            }
        }
        for source in mirrors.sources() {
            let Some(of) = self.registries.iter().find(|r| r.scope() == source).map(|r| r.mirrors.clone())
            else {
                continue;
            };
            for r in self.registries.iter_mut().filter(|r| r.mirrors.is_empty() && r.scope() != source) {
                let Some(rest) = r.scope().strip_prefix(source).filter(|rest| rest.starts_with('/')) else {
                    continue;
                };
                let inherited =
                    of.iter().map(|m| Mirror { location: format!("{}{rest}", m.location), ..m.clone() });
                r.mirrors = inherited.collect();
            }
        }
    }

    /// The text as Go's TOML encoder writes it, so that equal settings make equal bytes.
    fn write(&self) -> String {
        let quoted = |s: &str| toml::Value::String(s.to_owned()).to_string();
        let search: Vec<String> = self.search.iter().map(|s| quoted(s)).collect();
        let mut out = format!(
            "unqualified-search-registries = [{}]\nshort-name-mode = {}\nadditional-layer-store-auth-helper = \"\"\n",
            search.join(", "),
            quoted(&self.short_name_mode)
        );
        let mut line = |text: String| {
            out.push_str(&text);
            out.push('\n');
        };
        for r in &self.registries {
            line("\n[[registry]]".to_owned());
            line(format!("  prefix = {}", quoted(&r.prefix)));
            if !r.location.is_empty() {
                line(format!("  location = {}", quoted(&r.location)));
            }
            if r.insecure {
                line("  insecure = true".to_owned());
            }
            if r.blocked {
                line("  blocked = true".to_owned());
            }
            for m in &r.mirrors {
                line("\n  [[registry.mirror]]".to_owned());
                line(format!("    location = {}", quoted(&m.location)));
                if m.insecure {
                    line("    insecure = true".to_owned());
                }
                line(format!("    pull-from-mirror = {}", quoted(m.pull)));
            }
        }
        out
    }

    /// Every repository that images of a scope may come from, including mirrors.
    fn sources_of(&self, scope: &str) -> Vec<String> {
        let matching = self.registries.iter().filter(|r| nested(scope, r.scope()));
        let mut all = Vec::new();
        if let Some(r) = matching.max_by_key(|r| r.scope().len()) {
            let rest = scope.strip_prefix(r.scope()).unwrap_or_default();
            let own = Some(&r.location).filter(|l| !l.is_empty());
            all.extend(r.mirrors.iter().map(|m| &m.location).chain(own).map(|l| format!("{l}{rest}")));
        }
        for r in self.registries.iter().filter(|r| r.scope() != scope && nested(r.scope(), scope)) {
            let own = Some(&r.location).filter(|l| !l.is_empty());
            all.extend(r.mirrors.iter().map(|m| &m.location).chain(own).cloned());
        }
        all
    }

    /// The repositories that the image of a repository would be pulled from.
    fn pull_sources(&self, repository: &str) -> Vec<String> {
        let matching = self.registries.iter().filter(|r| nested(repository, r.scope()));
        let Some(r) = matching.max_by_key(|r| r.scope().len()) else { return vec![repository.to_owned()] };
        let rest = repository.strip_prefix(r.scope()).unwrap_or_default();
        let mirrors = r.mirrors.iter().filter(|m| m.pull == "digest-only");
        mirrors.map(|m| format!("{}{rest}", m.location)).chain([repository.to_owned()]).collect()
    }
}

fn effective(sources: &Sources, payload: &str, mirrors: &MirrorSets) -> EffectiveScopes {
    let mut e = EffectiveScopes::default();
    let blocked = sources.blocked.as_deref().unwrap_or_default();
    for scope in blocked {
        if !payload.is_empty() && nested(payload, scope) {
            let mut conf = Conf::default();
            conf.edit(sources.insecure.as_deref().unwrap_or_default(), blocked, mirrors);
            let pulls = conf.pull_sources(payload);
            let reachable = pulls.iter().any(|s| !blocked.iter().any(|b| nested(s, b)));
            if !reachable {
                // Blocking it would leave no way to pull the release, so this scope is left out.
                continue;
            }
            if scope != payload {
                e.policy.get_or_insert_default().push(scope.clone());
            }
            e.allowed.get_or_insert_default().push(payload.to_owned());
        } else {
            e.policy.get_or_insert_default().push(scope.clone());
        }
        e.registries.get_or_insert_default().push(scope.clone());
    }
    if let Some(allowed) = &sources.allowed {
        e.allowed.get_or_insert_default().extend(allowed.iter().cloned());
    }
    e
}

/// The texts of the role's templates that are edited.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Templates<'a> {
    pub(crate) registries: Option<&'a str>,
    pub(crate) policy: Option<&'a str>,
}

/// Paths and texts of the files for a pool, only if they differ from the templates.
pub(crate) fn files(
    sources: &Sources,
    mirrors: &MirrorSets,
    signatures: &Signatures,
    release_image: &str,
    templates: Templates<'_>,
) -> Result<Vec<(String, String)>, RegistriesError> {
    let payload = repository(release_image);
    let e = effective(sources, payload, mirrors);
    let mut files = Vec::new();
    let mut conf = Conf::default();
    if sources.insecure.is_some() || e.registries.is_some() || mirrors.any_object() {
        conf = Conf::read(templates.registries.unwrap_or_default())?;
        let insecure = sources.insecure.as_deref().unwrap_or_default();
        conf.edit(insecure, e.registries.as_deref().unwrap_or_default(), mirrors);
        files.push((REGISTRIES_CONF.to_owned(), conf.write()));
    }
    if e.policy.is_some() || e.allowed.is_some() || !signatures.is_empty() {
        let template = templates.policy.unwrap_or(ACCEPT_ANYTHING);
        let policy = policy(template, &e, payload, signatures)?;
        let as_it_is = e.policy.is_none() && e.allowed.is_none() && signatures.cluster.is_empty();
        let text = if as_it_is { template.to_owned() } else { policy.write()? };
        files.push((POLICY_JSON.to_owned(), text));
        if !signatures.is_empty() {
            files.push((signatures::SIGSTORE_CONF.to_owned(), attachments(signatures, &conf)));
        }
        for (namespace, scopes) in &signatures.namespaces {
            files.push((signatures::namespace_policy(namespace), policy.with(scopes).write()?));
        }
    }
    if let Some(search) = &sources.search {
        files.push((SEARCH_CONF.to_owned(), Conf { search: search.clone(), ..Conf::default() }.write()));
    }
    Ok(files)
}

/// The registries.d file for the repositories that store signatures beside the images (containers-registries.d(5)).
fn attachments(signatures: &Signatures, conf: &Conf) -> String {
    let mut all: BTreeSet<String> = BTreeSet::new();
    for scope in signatures.scopes() {
        all.insert(scope.to_owned());
        all.extend(conf.sources_of(scope));
    }
    let docker: serde_json::Map<String, Value> =
        all.into_iter().map(|scope| (scope, json!({"use-sigstore-attachments": true}))).collect();
    crate::go_yaml::emit(&json!({ "docker": docker }))
}

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "json! values read better where they stand")]
mod tests;
