//! The text of a user's own key file, and our block of lines in it. Pure.
//!
//! Source: sshd(8), section AUTHORIZED_KEYS FILE FORMAT.

/// Our lines in the user's own key file are between these two.
pub(super) const BEGIN: &str = "# BEGIN keys of the MachineConfig: do not edit";
/// See [`BEGIN`].
pub(super) const END: &str = "# END keys of the MachineConfig";

/// Whether a key file contains a key.
pub(crate) fn has_key(text: &str) -> bool {
    text.lines().any(|line| !matches!(line.trim().chars().next(), None | Some('#')))
}

/// The user's own key file with these keys as our block in it. Without keys the block is removed. All other lines
/// stay. If somebody has removed the block's last line, only its first line and the keys of ours that directly follow
/// it are replaced.
pub(crate) fn with_block(text: &str, written: &str, keys: &str) -> String {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let mut out = String::new();
    let mut rest = lines.as_slice();
    while let Some((line, after)) = rest.split_first() {
        rest = after;
        if line.trim_end() != BEGIN {
            out.push_str(line);
            continue;
        }
        let marker = after.iter().position(|l| matches!(l.trim_end(), BEGIN | END));
        let end = marker.filter(|at| after.get(*at).is_some_and(|l| l.trim_end() == END));
        let is_ours = |l: &&&str| written.lines().any(|key| key == l.trim_end());
        let ours = end.map_or_else(|| after.iter().take_while(is_ours).count(), |at| at + 1);
        rest = after.get(ours..).unwrap_or_default();
    }
    if keys.is_empty() {
        return out;
    }
    if !out.is_empty() && !out.ends_with('\n') {
        out.push('\n');
    }
    format!("{out}{BEGIN}\n{keys}{END}\n")
}
