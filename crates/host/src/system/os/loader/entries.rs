//! Boot Loader Specification entries, type 1: `KEY VALUE` lines, of which `options` may come more than once
//! (<https://uapi-group.org/specifications/specs/boot_loader_specification/>). Pure: text in, text out.
//!
//! Not here: which entries belong to this host (see `find`).

use desired::arguments;

use super::line::edit;

/// The line's value, if this is its key.
fn of<'t>(line: &'t str, key: &str) -> Option<&'t str> {
    let rest = line.trim_start().strip_prefix(key)?;
    rest.starts_with([' ', '\t']).then(|| rest.trim()).or_else(|| rest.is_empty().then_some(""))
}

/// The first value of a key.
pub(super) fn value<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    text.lines().find_map(|line| of(line, key))
}

/// All kernel arguments of an entry.
pub(crate) fn arguments_of(text: &str) -> Vec<String> {
    let options: Vec<String> =
        text.lines().filter_map(|line| of(line, "options")).map(str::to_owned).collect();
    arguments(&options)
}

/// The entry without the last occurrence of each argument of `had`, and with `has` after all others. All else keeps
/// its bytes.
pub(super) fn with_arguments(text: &str, had: &[String], has: &[String]) -> String {
    let mut lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
    let mut left = had.to_vec();
    let options = |lines: &[String]| -> Vec<usize> {
        lines.iter().enumerate().filter(|(_, l)| of(l, "options").is_some()).map(|(i, _)| i).collect()
    };
    // From the last line to the first, as the own arguments are the last ones.
    for at in options(&lines).into_iter().rev() {
        let Some(line) = lines.get_mut(at) else { continue };
        let mut of_line = Vec::new();
        let mut words = arguments(&[of(line, "options").unwrap_or_default().to_owned()]);
        left.retain(|one| match words.iter().rposition(|w| w == one) {
            Some(i) => {
                of_line.push(words.remove(i));
                false
            }
            None => true,
        });
        let was = !of_line.is_empty();
        *line = edit_options(line, &of_line, &[]);
        if was && of(line, "options") == Some("") {
            line.clear();
        }
    }
    if has.is_empty() {
        return lines.concat();
    }
    if let Some(line) = options(&lines).last().and_then(|at| lines.get_mut(*at)) {
        *line = edit_options(line, &[], has);
    } else {
        if lines.last().is_some_and(|l| !l.is_empty() && !l.ends_with('\n')) {
            lines.push("\n".to_owned());
        }
        lines.push(format!("options {}\n", has.join(" ")));
    }
    lines.concat()
}

/// Edits what follows the key `options`.
fn edit_options(line: &str, had: &[String], has: &[String]) -> String {
    let key = line.find("options").map_or(0, |at| at + "options".len());
    let (head, rest) = (line.get(..key).unwrap_or_default(), line.get(key..).unwrap_or_default());
    let value = rest.trim_start_matches([' ', '\t']);
    let gap = rest.len() - value.len();
    let gap = rest.get(..gap).filter(|g| !g.is_empty()).unwrap_or(" ");
    format!("{head}{gap}{}", edit(value, had, has))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEDORA: &str = "title Fedora Linux (6.8.5-301.fc40.x86_64) 40\nversion 6.8.5-301.fc40.x86_64\n\
        linux /vmlinuz-6.8.5-301.fc40.x86_64\ninitrd /initramfs-6.8.5-301.fc40.x86_64.img $tuned_initrd\n\
        options root=UUID=1-2 ro rootflags=subvol=root rhgb quiet $tuned_params\ngrub_users $grub_users\n";

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn an_entry_gets_own_arguments_and_loses_them_without_a_trace() {
        let own = words("a b=1");
        let with = with_arguments(FEDORA, &[], &own);
        assert!(with.contains("rhgb quiet $tuned_params a b=1\ngrub_users"), "{with}");
        assert_eq!(
            arguments_of(&with),
            words("root=UUID=1-2 ro rootflags=subvol=root rhgb quiet $tuned_params a b=1")
        );
        assert_eq!(with_arguments(&with, &own, &[]), FEDORA);
        let changed = with_arguments(&with, &own, &words("b=2"));
        assert!(changed.contains("quiet $tuned_params b=2\n"), "{changed}");
        assert_eq!(value(FEDORA, "version"), Some("6.8.5-301.fc40.x86_64"));
        assert_eq!(value(FEDORA, "vers"), None);
    }

    #[test]
    fn options_may_be_absent_or_come_in_several_lines() {
        let none = "title x\nlinux /l\n";
        let with = with_arguments(none, &[], &words("a"));
        assert_eq!(with, "title x\nlinux /l\noptions a\n");
        assert_eq!(with_arguments(&with, &words("a"), &[]), none);
        assert_eq!(with_arguments("linux /l", &[], &words("a")), "linux /l\noptions a\n");
        let two = "options   ro\nlinux /l\noptions quiet a\n";
        assert_eq!(arguments_of(two), words("ro quiet a"));
        assert_eq!(
            with_arguments(two, &words("a"), &words("c")),
            "options   ro\nlinux /l\noptions quiet c\n"
        );
        assert_eq!(with_arguments(two, &words("ro"), &[]), "linux /l\noptions quiet a\n");
    }
}
