//! The page about back ends and the trait: which methods have a default.

/// The methods of a trait that have a body, sorted.
fn defaults(source: &str) -> Vec<&str> {
    let methods = source.split("\n    fn ").skip(1);
    let with_body = methods.filter(|method| {
        let end = method.find(['{', ';']).unwrap();
        method[end..].starts_with('{')
    });
    let mut names: Vec<&str> = with_body.map(|method| method.split_once('(').unwrap().0).collect();
    names.sort_unstable();
    names
}

#[test]
fn the_page_on_back_ends_says_what_is_missing_for_each_default() {
    let (source, page) =
        (include_str!("../os.rs"), include_str!("../../../../../docs/extending/back-end.md"));
    let (_, after) = source.split_once("pub trait OsBackend").unwrap();
    let defaults = defaults(after.split_once("\n}\n").unwrap().0);
    assert!(defaults.contains(&"tidy") && !defaults.contains(&"stage"), "{defaults:?}");
    let (_, table) = page.split_once("| default of |").unwrap();
    let rows = table.split_once("\n\n").unwrap().0.lines().skip(2);
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    let mut named: Vec<&str> = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    named.sort_unstable();
    assert_eq!(named, defaults);
}
