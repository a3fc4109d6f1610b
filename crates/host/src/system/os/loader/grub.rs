//! GRUB's settings and what it generates from them. Pure: text in, text out.
//!
//! Settings are shell text that `grub-mkconfig` sources; its result is a script in GRUB's own language
//! (<https://www.gnu.org/software/grub/manual/grub/grub.html>). The own arguments are added to
//! `GRUB_CMDLINE_LINUX_DEFAULT`: they then come after all of the host's, and recovery entries stay without them.
//!
//! Not here: which program and which files (see `find`).

use desired::arguments;

const HEAD: &str =
    "# Kernel arguments of MachineConfigs, written by machine-config-daemon: change those, not this.\n";
const BEGIN: &str = "# BEGIN machine-config-daemon\n";
const END: &str = "# END machine-config-daemon\n";
const ASSIGN: &str = "GRUB_CMDLINE_LINUX_DEFAULT=\"$GRUB_CMDLINE_LINUX_DEFAULT ";

/// The text of the drop-in. The arguments hold nothing that a shell would read (see `ArgumentSyntax::Grub`).
pub(super) fn settings(own: &[String]) -> String {
    format!("{HEAD}{ASSIGN}{}\"\n", own.join(" "))
}

/// The own arguments of a drop-in, or of the block in a shared file.
///
/// # Errors
/// The drop-in is not as it was written.
pub(super) fn own(text: &str) -> Result<Vec<String>, String> {
    let part = match text.split_once(BEGIN) {
        Some((_, rest)) => {
            rest.split_once(END).ok_or("the end of the agent's block is missing; remove the block")?.0
        }
        None if text.starts_with(HEAD) => text,
        None => return Ok(Vec::new()),
    };
    let value = part.lines().find_map(|l| l.strip_prefix(ASSIGN));
    let value = value.and_then(|v| v.trim_end().strip_suffix('"'));
    let value = value.ok_or("it was edited; put GRUB_CMDLINE_LINUX_DEFAULT back as it was, or remove it")?;
    Ok(arguments(&[value.to_owned()]))
}

/// The shared settings file with a block of own arguments at its end instead of the one that it has.
pub(super) fn with_block(text: &str, own: &[String]) -> String {
    let rest = match text.split_once(BEGIN).and_then(|(a, b)| Some((a, b.split_once(END)?.1))) {
        Some((before, after)) => format!("{before}{after}"),
        None => text.to_owned(),
    };
    if own.is_empty() {
        return rest;
    }
    let end = if rest.is_empty() || rest.ends_with('\n') { "" } else { "\n" };
    format!("{rest}{end}{BEGIN}{}{END}", settings(own))
}

/// An entry of GRUB's menu that boots a kernel.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MenuEntry {
    /// Its title.
    pub(super) title: String,
    /// Position, title and id of the submenus that lead to it and of itself.
    place: Vec<Place>,
    /// The kernel's file.
    pub(super) kernel: String,
    /// The kernel's arguments. Variables of GRUB are words that begin with `$`.
    pub(super) arguments: Vec<String>,
    /// It boots in order to repair the host.
    pub(super) is_recovery: bool,
    /// It boots a kernel of this host, and not another system on its disks.
    pub(super) is_ours: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    number: usize,
    title: String,
    id: String,
}

/// The first quoted text of a line.
fn quoted(text: &str) -> Option<(String, &str)> {
    let at = text.find(['\'', '"'])?;
    let quote = text.get(at..=at)?;
    let (inside, rest) = text.get(at + 1..)?.split_once(quote)?;
    // `'\''` is how a quote stands in a title.
    match rest.strip_prefix("\\''") {
        Some(more) if quote == "'" => {
            let (tail, rest) = more.split_once(quote)?;
            Some((format!("{inside}'{tail}"), rest))
        }
        _ => Some((inside.to_owned(), rest)),
    }
}

fn place(line: &str, number: usize) -> Place {
    let (title, rest) = quoted(line).unwrap_or_default();
    let id = ["$menuentry_id_option", "--id"].iter().find_map(|key| rest.split_once(key));
    let id = id.and_then(|(_, after)| quoted(after)).unwrap_or_default().0;
    Place { number, title, id }
}

/// All entries of a configuration that boot a kernel, in order.
pub(super) fn entries(cfg: &str) -> Vec<MenuEntry> {
    let mut out = Vec::new();
    let mut section = "";
    // What each open brace belongs to, and how many entries each level of the menu has.
    let mut open: Vec<Option<Place>> = Vec::new();
    let mut counts = vec![0_usize];
    for line in cfg.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("### BEGIN ") {
            section = name;
        } else if line == "}" {
            if open.pop().is_some_and(|o| o.is_some()) {
                counts.pop();
            }
        } else if line.ends_with('{') {
            let is_menu = ["menuentry ", "submenu "].iter().any(|k| line.starts_with(k));
            let level = counts.last_mut().filter(|_| is_menu);
            open.push(level.map(|count| {
                let place = place(line, *count);
                *count += 1;
                place
            }));
            if is_menu {
                counts.push(0);
            }
        } else if let Some(rest) = ["linux", "linux16", "linuxefi"]
            .iter()
            .find_map(|k| line.strip_prefix(k).filter(|r| r.starts_with([' ', '\t'])))
        {
            let place: Vec<Place> = open.iter().flatten().cloned().collect();
            let Some(last) = place.last() else { continue };
            let mut words = arguments(&[rest.to_owned()]).into_iter();
            let kernel = words.next().unwrap_or_default();
            out.push(MenuEntry {
                kernel,
                title: last.title.clone(),
                is_recovery: last.id.contains("-recovery-") || last.title.ends_with("(recovery mode)"),
                arguments: words.collect(),
                is_ours: section.starts_with("/etc/grub.d/10_linux"),
                place,
            });
        }
    }
    out
}

/// The default entry that a configuration names: its own `set default`, or `saved_entry` of GRUB's environment block.
pub(super) fn chosen<'t>(cfg: &'t str, environment: &'t str) -> Option<&'t str> {
    let set = |l: &'t str| l.trim().strip_prefix("set default=\"")?.strip_suffix('"');
    let named = cfg.lines().filter_map(set).find(|d| *d != "${next_entry}")?;
    match named {
        "${saved_entry}" => {
            environment.lines().find_map(|l| l.strip_prefix("saved_entry=")).filter(|s| !s.is_empty())
        }
        named => Some(named),
    }
}

/// The entry of the next boot: the one that the host's administrator chose as the default, else the first.
///
/// `chosen`: a number, a title or an id, with `>` between the levels of the menu.
pub(super) fn default_entry<'e>(list: &'e [MenuEntry], chosen: Option<&str>) -> Option<&'e MenuEntry> {
    let fits = |entry: &&MenuEntry, chosen: &str| {
        let parts: Vec<&str> = chosen.split('>').collect();
        parts.len() <= entry.place.len()
            && parts.iter().zip(&entry.place).all(|(part, place)| {
                *part == place.id || *part == place.title || part.parse() == Ok(place.number)
            })
    };
    chosen.and_then(|chosen| list.iter().find(|e| fits(e, chosen))).or(list.first())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    /// As grub-mkconfig 2.06 of Debian 12 writes it, with a second system that os-prober found.
    pub(crate) const CFG: &str = "### BEGIN /etc/grub.d/00_header ###\n\
        if [ \"${next_entry}\" ] ; then\n   set default=\"${next_entry}\"\nelse\n   set default=\"0\"\nfi\n\
        function savedefault {\n  if [ -z \"${boot_once}\" ]; then\n    save_env saved_entry\n  fi\n}\n\
        ### END /etc/grub.d/00_header ###\n\
        ### BEGIN /etc/grub.d/10_linux ###\n\
        menuentry 'Debian GNU/Linux' --class debian $menuentry_id_option 'gnulinux-simple-1' {\n\
        \tload_video\n\tlinux\t/boot/vmlinuz-6.1 root=UUID=1 ro  console=ttyS0 quiet $vt_handoff\n\
        \tinitrd\t/boot/initrd.img-6.1\n}\n\
        submenu 'Advanced options for Debian GNU/Linux' $menuentry_id_option 'gnulinux-advanced-1' {\n\
        \tmenuentry 'Debian GNU/Linux, with Linux 6.1' --class debian $menuentry_id_option 'gnulinux-6.1-advanced-1' {\n\
        \t\tlinux\t/boot/vmlinuz-6.1 root=UUID=1 ro  console=ttyS0 quiet\n\t}\n\
        \tmenuentry 'Debian GNU/Linux, with Linux 6.1 (recovery mode)' $menuentry_id_option 'gnulinux-6.1-recovery-1' {\n\
        \t\tlinux\t/boot/vmlinuz-6.1 root=UUID=1 ro single \n\t}\n}\n\
        ### END /etc/grub.d/10_linux ###\n\
        ### BEGIN /etc/grub.d/30_os-prober ###\n\
        menuentry 'Bob'\\''s Linux' $menuentry_id_option 'osprober-2' {\n\tlinux /vmlinuz root=/dev/sdb1\n}\n";

    #[test]
    fn what_it_will_boot_is_read_from_its_configuration() {
        let list = entries(CFG);
        let seen: Vec<_> = list
            .iter()
            .map(|e| (e.title.as_str(), e.arguments.join(" "), e.is_recovery, e.is_ours))
            .collect();
        assert_eq!(
            seen,
            [
                (
                    "Debian GNU/Linux",
                    "root=UUID=1 ro console=ttyS0 quiet $vt_handoff".to_owned(),
                    false,
                    true
                ),
                (
                    "Debian GNU/Linux, with Linux 6.1",
                    "root=UUID=1 ro console=ttyS0 quiet".to_owned(),
                    false,
                    true
                ),
                (
                    "Debian GNU/Linux, with Linux 6.1 (recovery mode)",
                    "root=UUID=1 ro single".to_owned(),
                    true,
                    true
                ),
                ("Bob's Linux", "root=/dev/sdb1".to_owned(), false, false),
            ]
        );
        for (chosen, want) in [
            (None, 0),
            (Some("0"), 0),
            (Some("2"), 3),
            (Some("1>0"), 1),
            (Some("gnulinux-advanced-1>gnulinux-6.1-advanced-1"), 1),
            (Some("Advanced options for Debian GNU/Linux>1"), 2),
            (Some("Bob's Linux"), 3),
            (Some("gone"), 0),
        ] {
            assert_eq!(default_entry(&list, chosen), list.get(want), "{chosen:?}");
        }
        assert_eq!(chosen(CFG, "saved_entry=1>0\n"), Some("0"));
        let saved = CFG.replace("set default=\"0\"", "set default=\"${saved_entry}\"");
        assert_eq!(chosen(&saved, "# GRUB Environment Block\nsaved_entry=1>0\n####"), Some("1>0"));
        assert_eq!(chosen(&saved, "# GRUB Environment Block\nsaved_entry=\n####"), None);
    }

    #[test]
    fn the_default_entry_names_its_kernel() {
        let list = entries(CFG);
        assert_eq!(default_entry(&list, Some("1>0")).unwrap().kernel, "/boot/vmlinuz-6.1");
    }

    #[test]
    fn settings_hold_what_was_set_and_no_more() {
        let list = words("a b=1,2 hugepagesz=1G");
        let text = settings(&list);
        assert!(text.ends_with(
            "\nGRUB_CMDLINE_LINUX_DEFAULT=\"$GRUB_CMDLINE_LINUX_DEFAULT a b=1,2 hugepagesz=1G\"\n"
        ));
        assert_eq!(own(&text), Ok(list));
        assert_eq!(own(""), Ok(Vec::new()));
        assert_eq!(own("GRUB_TIMEOUT=5\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\n"), Ok(Vec::new()));
        assert!(own(&format!("{HEAD}GRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\n")).is_err());
    }

    #[test]
    fn a_block_comes_and_goes_in_a_shared_file() {
        for shared in ["", "GRUB_TIMEOUT=5\n", "GRUB_TIMEOUT=5"] {
            let with = with_block(shared, &words("a b"));
            assert_eq!(own(&with), Ok(words("a b")), "{with}");
            let more = with_block(&format!("{with}GRUB_DISABLE_RECOVERY=true\n"), &words("c"));
            assert_eq!(own(&more), Ok(words("c")));
            assert!(more.contains("GRUB_DISABLE_RECOVERY=true\n# BEGIN"), "{more}");
            assert_eq!(with_block(&with, &[]).trim_end(), shared.trim_end());
        }
        assert!(own(BEGIN).is_err());
    }
}
