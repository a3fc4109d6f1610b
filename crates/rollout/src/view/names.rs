//! Strings that many views share: interned names and label sets. What it is not: a cache of objects.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// Interned strings. 5,000 nodes name the same few configs, label keys and zones; each is stored once.
#[derive(Debug, Default)]
pub struct Names(HashSet<Arc<str>>);

impl Names {
    /// The shared copy of a string.
    pub fn get(&mut self, text: &str) -> Arc<str> {
        if let Some(have) = self.0.get(text) {
            return have.clone();
        }
        let new: Arc<str> = text.into();
        self.0.insert(new.clone());
        new
    }

    /// Drops strings that nothing else holds. Cheap enough to call once a minute.
    pub fn prune(&mut self) {
        self.0.retain(|s| Arc::strong_count(s) > 1);
    }

    /// How many strings there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Labels in 32 bytes an entry: keys and values interned, ordered by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(Box<[(Arc<str>, Arc<str>)]>);

impl Labels {
    /// From an object's labels.
    pub fn new(labels: Option<&BTreeMap<String, String>>, names: &mut Names) -> Self {
        Self(labels.into_iter().flatten().map(|(k, v)| (names.get(k), names.get(v))).collect())
    }

    /// The value of a label.
    pub fn get(&self, key: &str) -> Option<&str> {
        let at = self.0.binary_search_by(|(k, _)| (**k).cmp(key)).ok()?;
        self.0.get(at).map(|(_, v)| &**v)
    }

    /// All of them, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(k, v)| (&**k, &**v))
    }

    /// The same labels with some set or removed.
    #[must_use]
    pub fn patched(&self, changes: &BTreeMap<Arc<str>, Option<Arc<str>>>) -> Self {
        let mut all: BTreeMap<Arc<str>, Arc<str>> = self.0.iter().cloned().collect();
        for (key, value) in changes {
            match value {
                Some(value) => all.insert(key.clone(), value.clone()),
                None => all.remove(key),
            };
        }
        Self(all.into_iter().collect())
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for Labels {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(pairs: I) -> Self {
        let ordered: BTreeMap<&str, &str> = pairs.into_iter().collect();
        Self(ordered.into_iter().map(|(k, v)| (k.into(), v.into())).collect())
    }
}

impl Serialize for Labels {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Ok(Self(BTreeMap::<Arc<str>, Arc<str>>::deserialize(d)?.into_iter().collect()))
    }
}
