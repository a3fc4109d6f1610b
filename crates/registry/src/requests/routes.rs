//! Where images come from: mirrors, blocked and insecure registries, in the form of containers-registries.conf(5). That is the
//! form in which nodes have these settings, and which `render` writes from ImageDigestMirrorSets and the like. Pure.
//!
//! What it is not: the search registries for short names, which are refused here.

use crate::reference::Reference;
use serde::Deserialize;

/// Why a registries.conf cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RoutesError {
    /// Not TOML of this form.
    #[error("does not have the format of registries.conf: {0}")]
    Form(String),
    /// A location that is none.
    #[error("names the location {0:?}, which is not of the form HOST/NAME")]
    Location(String),
}

/// A place to ask for an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// The image as that place calls it.
    pub(crate) image: Reference,
    /// Without TLS, or with a certificate that nobody vouches for.
    pub(crate) insecure: bool,
}

/// The settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Routes {
    entries: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Entry {
    #[serde(default)]
    prefix: String,
    #[serde(default)]
    location: String,
    #[serde(default)]
    insecure: bool,
    #[serde(default)]
    blocked: bool,
    #[serde(default, rename = "mirror-by-digest-only")]
    digest_only: bool,
    #[serde(default, rename = "mirror")]
    mirrors: Vec<Mirror>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Mirror {
    location: String,
    #[serde(default)]
    insecure: bool,
    #[serde(default, rename = "pull-from-mirror")]
    pull: String,
}

impl Entry {
    fn scope(&self) -> &str {
        if self.prefix.is_empty() { &self.location } else { &self.prefix }
    }

    /// How much of the name is in this entry's scope.
    fn covers(&self, name: &str) -> Option<usize> {
        let scope = self.scope();
        if let Some(domain) = scope.strip_prefix('*').filter(|d| d.starts_with('.')) {
            let host = name.split('/').next().unwrap_or_default();
            let bare = host.split(':').next().unwrap_or_default();
            return bare.ends_with(domain).then_some(host.len());
        }
        let rest = name.strip_prefix(scope)?;
        (!scope.is_empty() && (rest.is_empty() || rest.starts_with('/'))).then_some(scope.len())
    }
}

impl Mirror {
    fn serves(&self, by_digest: bool, digest_only: bool) -> bool {
        match self.pull.as_str() {
            "digest-only" => by_digest,
            "tag-only" => !by_digest,
            _ => by_digest || !digest_only,
        }
    }
}

impl Routes {
    /// Adds a registries.conf, or a drop-in of it. An entry takes the place of one with the same scope that came before.
    ///
    /// # Errors
    /// Another form. Nothing is added then.
    pub fn add(&mut self, text: &str) -> Result<(), RoutesError> {
        #[derive(Deserialize)]
        struct File {
            #[serde(default)]
            registry: Vec<Entry>,
        }
        let file: File = toml::from_str(text).map_err(|e| RoutesError::Form(e.message().to_owned()))?;
        for entry in &file.registry {
            let own = Some(&entry.location).filter(|l| !l.is_empty());
            for location in entry.mirrors.iter().map(|m| &m.location).chain(own) {
                let whole = format!("{location}/x");
                Reference::parse(&whole).map_err(|_| RoutesError::Location(location.clone()))?;
            }
        }
        for entry in file.registry {
            self.entries.retain(|e| e.scope() != entry.scope());
            self.entries.push(entry);
        }
        Ok(())
    }

    /// Where an image is pushed to, and so where it is deleted: no mirror, and under its own name, as container tools push.
    ///
    /// # Errors
    /// The scope that is blocked.
    pub(crate) fn source(&self, image: &Reference) -> Result<Endpoint, String> {
        let name = image.name();
        let covering = self.entries.iter().filter_map(|e| Some((e.covers(&name)?, e)));
        match covering.max_by_key(|(length, _)| *length) {
            Some((_, entry)) if entry.blocked => Err(entry.scope().to_owned()),
            found => Ok(Endpoint { image: image.clone(), insecure: found.is_some_and(|(_, e)| e.insecure) }),
        }
    }

    /// The places of an image, in the order in which they are asked.
    ///
    /// # Errors
    /// The scope that is blocked.
    pub(crate) fn places(&self, image: &Reference) -> Result<Vec<Endpoint>, String> {
        let name = image.name();
        let covering = self.entries.iter().filter_map(|e| Some((e.covers(&name)?, e)));
        let Some((length, entry)) = covering.max_by_key(|(length, _)| *length) else {
            return Ok(vec![Endpoint { image: image.clone(), insecure: false }]);
        };
        let rest = name.get(length..).unwrap_or_default();
        let by_digest = image.digest().is_some();
        let mirrors = entry.mirrors.iter().filter(|m| m.serves(by_digest, entry.digest_only));
        let mirrors: Vec<_> = mirrors.map(|m| (format!("{}{rest}", m.location), m.insecure)).collect();
        // What is blocked is not asked itself; its mirrors are, as container tools do (NeverContactSource).
        if entry.blocked && mirrors.is_empty() {
            return Err(entry.scope().to_owned());
        }
        let own = if entry.location.is_empty() { name.clone() } else { format!("{}{rest}", entry.location) };
        let all = mirrors.into_iter().chain((!entry.blocked).then_some((own, entry.insecure)));
        // A name that a location cannot have leaves the others.
        let place =
            |(name, insecure): (String, bool)| Some(Endpoint { image: image.named(&name)?, insecure });
        Ok(all.filter_map(place).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONF: &str = r#"
unqualified-search-registries = ["docker.io"]
[[registry]]
prefix = ""
location = "q.io/team"
  [[registry.mirror]]
  location = "m.io:5000/copy"
  insecure = true
  pull-from-mirror = "digest-only"
  [[registry.mirror]]
  location = "t.io"
  pull-from-mirror = "tag-only"
[[registry]]
location = "q.io/team/secret"
blocked = true
[[registry]]
prefix = "*.corp.io"
blocked = false
insecure = true
[[registry]]
prefix = "old.io"
location = "new.io/old"
mirror-by-digest-only = true
  [[registry.mirror]]
  location = "any.io"
"#;

    #[test]
    fn mirrors_come_first_and_each_serves_what_it_says() {
        let mut routes = Routes::default();
        routes.add(CONF).unwrap();
        let digest = format!("@sha256:{}", "0".repeat(64));
        for (image, tag, want) in [
            ("q.io/team/os", &digest, vec![("m.io:5000/copy/os", true), ("q.io/team/os", false)]),
            ("q.io/team/os", &":1".to_owned(), vec![("t.io/os", false), ("q.io/team/os", false)]),
            ("q.io/teams/os", &digest, vec![("q.io/teams/os", false)]),
            ("a.b.corp.io:5000/os", &digest, vec![("a.b.corp.io:5000/os", true)]),
            ("corp.io/os", &digest, vec![("corp.io/os", false)]),
            ("old.io/a", &digest, vec![("any.io/a", false), ("new.io/old/a", false)]),
            ("old.io/a", &":1".to_owned(), vec![("new.io/old/a", false)]),
            ("old.io:5000/a", &digest, vec![("old.io:5000/a", false)]),
        ] {
            let image = Reference::parse(&format!("{image}{tag}")).unwrap();
            let places = routes.places(&image).unwrap();
            let got: Vec<(String, bool)> = places.iter().map(|p| (p.image.to_string(), p.insecure)).collect();
            let want: Vec<(String, bool)> =
                want.into_iter().map(|(name, insecure)| (format!("{name}{tag}"), insecure)).collect();
            assert_eq!(got, want, "{image}");
        }
        let secret = Reference::parse("q.io/team/secret/os").unwrap();
        assert_eq!(routes.places(&secret).unwrap_err(), "q.io/team/secret");
        // Deletions go to no mirror, and under no other name.
        for (image, want) in [
            ("q.io/team/os", Ok(("q.io/team/os", false))),
            ("a.corp.io/os", Ok(("a.corp.io/os", true))),
            ("old.io/a", Ok(("old.io/a", false))),
            ("other.io/a", Ok(("other.io/a", false))),
            ("q.io/team/secret/os", Err("q.io/team/secret".to_owned())),
        ] {
            let got = routes.source(&Reference::parse(&format!("{image}{digest}")).unwrap());
            let got = got.map(|place| (place.image.name(), place.insecure));
            assert_eq!(got, want.map(|(name, insecure)| (name.to_owned(), insecure)), "{image}");
        }
        // A drop-in replaces.
        routes.add("[[registry]]\nlocation = \"q.io/team/secret\"\n").unwrap();
        assert!(routes.places(&secret).is_ok());
    }

    #[test]
    fn a_file_that_is_wrong_adds_nothing() {
        let mut routes = Routes::default();
        assert!(matches!(routes.add("registry = 1"), Err(RoutesError::Form(_))));
        let odd = "[[registry]]\nlocation = \"q.io\"\n[[registry.mirror]]\nlocation = \"https://m.io\"\n";
        assert_eq!(routes.add(odd), Err(RoutesError::Location("https://m.io".to_owned())));
        assert_eq!(routes, Routes::default());
    }
}
