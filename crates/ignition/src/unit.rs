//! Names and texts of systemd units, checked by the rules of systemd (systemd.unit(5)) and Ignition. Pure; systemd
//! itself is not asked.

/// Unit types that systemd knows.
const TYPES: [&str; 11] = [
    "service",
    "socket",
    "device",
    "mount",
    "automount",
    "swap",
    "target",
    "path",
    "timer",
    "slice",
    "scope",
];
/// systemd's limit for a unit's name, including the terminating zero byte.
const NAME_MAX: usize = 255;
/// The longest line that Ignition's unit parser reads.
const LINE_MAX: usize = 2048;

/// Checks whether systemd loads a unit of this name: `foo.service`, `foo@.service` and `foo@bar.service` are such
/// names.
///
/// # Errors
/// The rule that it breaks.
pub fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("a unit needs a name".to_owned());
    }
    if name.len() > NAME_MAX {
        return Err(format!("a unit's name has at most {NAME_MAX} bytes"));
    }
    let Some((stem, suffix)) = name.rsplit_once('.') else {
        return Err(format!("a unit's name ends in its type; one of .{}", TYPES.join(", .")));
    };
    if !TYPES.contains(&suffix) {
        return Err(format!("{suffix:?} is not a unit type; use one of .{}", TYPES.join(", .")));
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c);
    if let Some(bad) = stem.chars().find(|c| !allowed(*c)) {
        return Err(format!("{bad:?} cannot stand in a unit's name; systemd-escape shows how to write it"));
    }
    if stem.is_empty() || stem.starts_with('@') || stem.starts_with('.') {
        return Err("there is no name before the type".to_owned());
    }
    Ok(())
}

/// Checks whether systemd loads a drop-in of this name.
///
/// # Errors
/// The rule that it breaks.
pub fn check_dropin_name(name: &str) -> Result<(), String> {
    let Some(stem) = name.strip_suffix(".conf") else {
        return Err("a drop-in's name ends in .conf".to_owned());
    };
    if stem.contains('/') || stem.contains('\0') {
        return Err("a drop-in's name is a file name; it has no slash".to_owned());
    }
    if stem.is_empty() || stem.starts_with('.') {
        return Err("systemd does not read drop-ins whose name starts with a dot".to_owned());
    }
    Ok(())
}

/// Checks whether the text can be read as a unit file. As in Ignition, text before the first section is accepted, but
/// an opening bracket in it starts a section.
///
/// # Errors
/// The line and what is wrong there.
pub fn check_contents(text: &str) -> Result<(), String> {
    let mut in_section = false;
    let mut lines = text.split('\n').enumerate();
    while let Some((n, line)) = lines.next() {
        let at = n + 1;
        fits(at, line)?;
        let start = if in_section { line.trim_start() } else { before_section(line) };
        if start.is_empty() {
            continue;
        }
        let continued = if let Some(section) = start.strip_prefix('[') {
            let after = section.split_once(']').map(|(_, after)| after.trim());
            if after != Some("") {
                return Err(format!("line {at}: a section is written [NAME], with nothing after it"));
            }
            in_section = true;
            false
        } else if start.starts_with(['#', ';']) || start.contains('=') {
            start.trim_end().ends_with('\\')
        } else {
            return Err(format!("line {at}: an option is written NAME=VALUE"));
        };
        if continued {
            skip_continuation(&mut lines)?;
        }
    }
    Ok(())
}

/// The part of a line before the first section that counts: from its first bracket or comment on.
fn before_section(line: &str) -> &str {
    line.find(['[', '#', ';']).and_then(|i| line.get(i..)).unwrap_or_default()
}

/// Skips the lines that continue a line ending in a backslash; comments may be between them.
fn skip_continuation<'a>(lines: &mut impl Iterator<Item = (usize, &'a str)>) -> Result<(), String> {
    for (n, line) in lines {
        fits(n + 1, line)?;
        if !line.trim_start().starts_with(['#', ';']) && !line.trim_end().ends_with('\\') {
            break;
        }
    }
    Ok(())
}

fn fits(at: usize, line: &str) -> Result<(), String> {
    if line.len() >= LINE_MAX { Err(format!("line {at} is longer than {LINE_MAX} bytes")) } else { Ok(()) }
}

/// Whether the text has a section of this name.
pub(crate) fn has_section(text: &str, section: &str) -> bool {
    let name = |line: &str| line.trim().strip_prefix('[')?.strip_suffix(']').map(str::to_owned);
    text.lines().any(|l| name(l).as_deref() == Some(section))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_systemd_loads_are_accepted() {
        for name in [
            "a.service",
            "foo@.service",
            "foo@bar.service",
            "dev-disk\\x2dby.mount",
            "a:b_c.timer",
            "A.slice",
        ] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
    }

    #[test]
    fn unit_names_that_systemd_refuses_are_refused() {
        let long = format!("{}.service", "a".repeat(250));
        for name in [
            "",
            "nodots",
            "a.conf",
            ".service",
            "@.service",
            "@x.service",
            "a/b.service",
            "a b.service",
            "é.service",
            &long,
        ] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }

    #[test]
    fn dropins_end_in_conf_and_have_no_path() {
        assert_eq!(check_dropin_name("10-a.conf"), Ok(()));
        for name in ["10-a", ".conf", ".a.conf", "a/b.conf", ""] {
            assert!(check_dropin_name(name).is_err(), "{name}");
        }
    }

    #[test]
    fn unit_texts_are_checked_from_the_first_section_on() {
        for text in [
            "",
            "not a unit",
            "[Unit]\nDescription=x\n",
            "[Service]\nExecStart=/bin/a \\\n  --b \\\n# note\n  c\n",
            "# c\n; d\n[Service]\n",
            "key: value # [comment\n- list\n",
        ] {
            assert_eq!(check_contents(text), Ok(()), "{text}");
        }
        assert!(check_contents("text [Unit] more\n").unwrap_err().contains("line 1"));
        assert!(check_contents("[Unit] # why\nA=b\n").unwrap_err().contains("line 1"));
        assert!(check_contents("[Unit\nA=b\n").unwrap_err().contains("line 1"));
        assert!(check_contents("[Unit]\nA=b\nnonsense\n").unwrap_err().contains("line 3"));
        assert!(check_contents(&format!("[Unit]\nA={}\n", "x".repeat(3000))).unwrap_err().contains("line 2"));
    }
}
