//! Which of several names somebody may have meant. Pure.
//!
//! What it is not: a search. A name that differs in most of its characters is not found.

/// The names whose likeness to `what` is at least `least` (0 to 1: one minus the share of characters that differ, where two
/// swapped ones count once), at most `most` of them, the most similar first.
pub(crate) fn nearest<'a>(
    what: &str,
    names: impl IntoIterator<Item = &'a str>,
    most: usize,
    least: f64,
) -> Vec<&'a str> {
    let likeness = |name| (strsim::normalized_damerau_levenshtein(what, name), name);
    let mut near: Vec<(f64, &str)> =
        names.into_iter().map(likeness).filter(|(likeness, _)| *likeness >= least).collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0));
    near.into_iter().take(most).map(|(_, name)| name).collect()
}
