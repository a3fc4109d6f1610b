//! The parts of unit files that matter here: names, the `[Install]` section, presets. Pure. See systemd.unit(5) and
//! systemd.preset(5).

/// Whether systemd would accept this as the name of a unit.
pub(crate) fn is_unit_name(name: &str) -> bool {
    ignition::unit::check_name(name).is_ok()
}

/// The template of an instance: `x@.service` for `x@y.service`. `None`: the name has no `@`.
pub(crate) fn template_of(name: &str) -> Option<String> {
    let (stem, rest) = name.split_once('@')?;
    let (_, suffix) = rest.rsplit_once('.')?;
    Some(format!("{stem}@.{suffix}"))
}

/// Whether this is the name of a template.
pub(crate) fn is_template(name: &str) -> bool {
    template_of(name).is_some_and(|t| t == name)
}

/// The name of a template's instance.
pub(crate) fn instance(template: &str, instance: &str) -> String {
    template.replacen('@', &format!("@{instance}"), 1)
}

/// Expands the specifiers for parts of the unit's name in a word of `[Install]`: `%n`, `%N`, `%p`, `%i`, `%I`, `%j`
/// (systemd.unit(5)).
pub(crate) fn expanded(word: &str, unit: &str) -> String {
    let (stem, _) = unit.rsplit_once('.').unwrap_or((unit, ""));
    let (prefix, instance) = stem.split_once('@').unwrap_or((stem, ""));
    let last = prefix.rsplit('-').next().unwrap_or(prefix);
    [("%n", unit), ("%N", stem), ("%p", prefix), ("%i", instance), ("%I", instance), ("%j", last)]
        .iter()
        .fold(word.to_owned(), |word, (specifier, value)| word.replace(specifier, value))
}

/// The `[Install]` section of a unit file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Install {
    /// `(target, folder suffix)` for WantedBy, RequiredBy and UpheldBy.
    pub(crate) links: Vec<(String, &'static str)>,
    /// Other names of the unit.
    pub(crate) alias: Vec<String>,
    /// Units that are enabled and disabled together with it.
    pub(crate) also: Vec<String>,
    /// The instance that is enabled for a template.
    pub(crate) default_instance: Option<String>,
}

impl Install {
    /// Parses a unit file.
    pub(crate) fn parse(text: &str) -> Self {
        let mut out = Self::default();
        let mut inside = false;
        for line in text.replace("\\\n", " ").lines().map(str::trim) {
            if line.starts_with(['#', ';']) {
                continue;
            }
            if line.starts_with('[') {
                inside = line == "[Install]";
                continue;
            }
            let Some((key, value)) = line.split_once('=').filter(|_| inside) else { continue };
            let words = || value.split_whitespace().map(str::to_owned);
            match key.trim() {
                "WantedBy" => out.links.extend(words().map(|t| (t, "wants"))),
                "RequiredBy" => out.links.extend(words().map(|t| (t, "requires"))),
                "UpheldBy" => out.links.extend(words().map(|t| (t, "upholds"))),
                "Alias" => out.alias.extend(words()),
                "Also" => out.also.extend(words()),
                "DefaultInstance" => out.default_instance = words().next(),
                _ => {}
            }
        }
        out
    }

    /// Whether there is nothing to enable.
    pub(crate) fn is_empty(&self) -> bool {
        self.links.is_empty() && self.alias.is_empty() && self.also.is_empty()
    }
}

/// Whether presets (the texts of all files in their order) enable a unit. Without a matching rule they do
/// (systemd.preset(5)).
pub(crate) fn preset_enables(presets: &[String], unit: &str) -> bool {
    for line in presets.iter().flat_map(|t| t.lines()).map(str::trim) {
        let mut words = line.split_whitespace();
        let (Some(verb), Some(pattern)) = (words.next(), words.next()) else { continue };
        if matches!(verb, "enable" | "disable") && glob(pattern.as_bytes(), unit.as_bytes()) {
            return verb == "enable";
        }
    }
    true
}

/// Matches a text against `*` and `?` of shell patterns.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern.split_first(), text.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) => {
            glob(rest, text) || text.split_first().is_some_and(|(_, shorter)| glob(pattern, shorter))
        }
        (Some((b'?', rest)), Some((_, shorter))) => glob(rest, shorter),
        (Some((a, rest)), Some((b, shorter))) => a == b && glob(rest, shorter),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_names_that_systemd_refuses_are_refused() {
        for good in ["a.service", "a@.service", "a@b.c.timer", "dev-disk\\x2d1.mount", "a:b_c-d.socket"] {
            assert!(is_unit_name(good), "{good}");
        }
        let long = format!("{}.service", "a".repeat(250));
        for bad in
            ["a", ".service", "@.service", "a.conf", "a b.service", "../a.service", "a/b.service", &long]
        {
            assert!(!is_unit_name(bad), "{bad}");
        }
    }

    #[test]
    fn install_sections_are_read() {
        let i = Install::parse(
            "[Unit]\nWantedBy=no.target\n[Install]\n# c\nWantedBy=a.target b.target\nRequiredBy = c.target\nAlias=x.service\nAlso=y.socket\nDefaultInstance=tty1\n",
        );
        assert_eq!(i.links.len(), 3);
        assert_eq!(i.links[2], ("c.target".to_owned(), "requires"));
        assert_eq!((i.alias.len(), i.also.len(), i.default_instance.as_deref()), (1, 1, Some("tty1")));
        assert!(Install::parse("[Service]\nExecStart=/bin/true\n").is_empty());
    }

    #[test]
    fn templates_and_instances_of_units_are_distinguished() {
        assert_eq!(template_of("w@a.service").as_deref(), Some("w@.service"));
        assert_eq!(template_of("w.service"), None);
        assert!(is_template("w@.service") && !is_template("w@a.service"));
        assert_eq!(instance("w@.service", "a"), "w@a.service");
        assert_eq!(expanded("%p-%i@%i.socket", "w@a.service"), "w-a@a.socket");
        assert_eq!(expanded("b.socket", "w.service"), "b.socket");
    }

    #[test]
    fn the_first_preset_rule_decides() {
        let presets = ["enable a.*\ndisable *.timer\n".to_owned(), "disable *\n".to_owned()];
        assert!(preset_enables(&presets, "a.service"));
        assert!(!preset_enables(&presets, "b.timer"));
        assert!(!preset_enables(&presets, "c.service"));
        assert!(preset_enables(&[], "c.service"));
    }
}
