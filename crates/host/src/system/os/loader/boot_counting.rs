//! Names of entries whose boots systemd-boot counts (<https://systemd.io/AUTOMATIC_BOOT_ASSESSMENT/>). Pure.
//!
//! ```text
//! stage: NAME.conf ─► NAME~before.conf, and NAME+2.conf with the new arguments
//! boot:  NAME+2 ─► NAME+1-1 ─► NAME+0-2: systemd-boot renames it before each try, and goes on to NAME~before at the end
//! keep:  NAME+1-1 ─► NAME.conf, and NAME~before.conf goes
//! ```
//!
//! systemd-boot sorts names, and `~` before everything else: of two entries of one kernel it boots the one without.
//!
//! Not here: the files themselves (see `entry_files`).

/// How many boots a changed entry has: a power cut in the first one is no fault of its arguments.
const TRIES: u32 = 2;
const SUFFIX: &str = ".conf";
const BEFORE: &str = "~before";

/// Which version of an entry a file is, and how many tries it has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Its boots are not counted.
    Plain,
    /// It has so many tries left.
    Counted(u32),
    /// The previous entry, while the change is not kept yet.
    Before,
}

/// The stem and the kind of an entry by its path. `None`: it is no entry.
pub(super) fn parts(path: &str) -> Option<(&str, Kind)> {
    let name = path.strip_suffix(SUFFIX)?;
    if let Some(stem) = name.strip_suffix(BEFORE) {
        return Some((stem, Kind::Before));
    }
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| text.parse::<u32>().ok()).flatten()
    };
    if let Some((stem, counter)) = name.rsplit_once('+') {
        let (left, done) = counter.split_once('-').map_or((counter, None), |(left, done)| (left, Some(done)));
        if let Some(left) = number(left).filter(|_| done.is_none_or(|done| number(done).is_some())) {
            return Some((stem, Kind::Counted(left)));
        }
    }
    Some((name, Kind::Plain))
}

/// The path of an entry whose boots are not counted.
pub(super) fn plain(stem: &str) -> String {
    format!("{stem}{SUFFIX}")
}

/// The path of a changed entry.
pub(super) fn counted(stem: &str) -> String {
    format!("{stem}+{TRIES}{SUFFIX}")
}

/// The path of the previous entry, while a change is not kept yet.
pub(super) fn before(stem: &str) -> String {
    format!("{stem}{BEFORE}{SUFFIX}")
}

/// The file of an entry that the boot loader boots next.
pub(super) fn next<'f>(files: &[&'f str]) -> Option<&'f str> {
    let rank = |path: &str| match parts(path).map(|(_, kind)| kind) {
        Some(Kind::Counted(left)) if left > 0 => 3,
        Some(Kind::Plain) => 2,
        Some(Kind::Before) => 1,
        Some(Kind::Counted(_)) | None => 0,
    };
    files.iter().copied().max_by_key(|path| rank(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_whose_entry_it_is_and_how_often_it_may_boot() {
        for (path, stem, kind) in [
            ("/e/id-6.1.conf", "/e/id-6.1", Kind::Plain),
            ("/e/id-6.1+3.conf", "/e/id-6.1", Kind::Counted(3)),
            ("/e/id-6.1+1-2.conf", "/e/id-6.1", Kind::Counted(1)),
            ("/e/id-6.1+0-2.conf", "/e/id-6.1", Kind::Counted(0)),
            ("/e/id-6.1~before.conf", "/e/id-6.1", Kind::Before),
            ("/e/id-6.1+deb12.conf", "/e/id-6.1+deb12", Kind::Plain),
            ("/e/id-6.1+1-x.conf", "/e/id-6.1+1-x", Kind::Plain),
            ("/e/id-6.1+.conf", "/e/id-6.1+", Kind::Plain),
        ] {
            assert_eq!(parts(path), Some((stem, kind)), "{path}");
        }
        assert_eq!(parts("/e/x.conf.bak"), None);
        let (stem, kind) = parts("/e/a.conf").unwrap();
        assert_eq!((counted(stem).as_str(), kind), ("/e/a+2.conf", Kind::Plain));
        assert_eq!((plain(stem).as_str(), before(stem).as_str()), ("/e/a.conf", "/e/a~before.conf"));
    }

    #[test]
    fn an_entry_without_tries_gives_way_to_the_one_of_before() {
        for (files, want) in [
            (&["a.conf"][..], Some("a.conf")),
            (&["a~before.conf", "a+2.conf"], Some("a+2.conf")),
            (&["a+1-1.conf", "a~before.conf"], Some("a+1-1.conf")),
            (&["a+0-2.conf", "a~before.conf"], Some("a~before.conf")),
            (&["a.conf", "a~before.conf"], Some("a.conf")),
            (&["a~before.conf"], Some("a~before.conf")),
            (&["a+0-3.conf"], Some("a+0-3.conf")),
            (&[], None),
        ] {
            assert_eq!(next(files), want, "{files:?}");
        }
    }
}
