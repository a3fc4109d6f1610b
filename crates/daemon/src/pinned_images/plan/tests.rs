//! Tests of `plan`: what is pulled, pinned and unpinned, and what is held back.

use super::*;

fn set(name: &str, images: &[&str]) -> PinnedSet {
    PinnedSet {
        name: name.to_owned(),
        generation: 1,
        images: images.iter().map(|i| (*i).to_owned()).collect(),
    }
}

fn facts(present: &[(&str, bool)], ours: &[&str]) -> Facts {
    Facts {
        present: present.iter().map(|(image, pinned)| ((*image).to_owned(), *pinned)).collect(),
        ours: ours.iter().map(|image| (*image).to_owned()).collect(),
        ready: true,
        ..Facts::default()
    }
}

#[test]
fn what_is_missing_is_pulled_what_is_there_is_pinned_and_what_goes_is_unpinned() {
    let sets = [set("a", &["x", "y"]), set("b", &["y", "z", ""])];
    type Row<'r> = (&'r str, Facts, [&'r [&'r str]; 3]);
    let rows: [Row<'_>; 7] = [
        ("nothing is there", facts(&[], &[]), [&[], &[], &["x", "y", "z"]]),
        ("some are there", facts(&[("y", false)], &[]), [&[], &["y"], &["x", "z"]]),
        ("all is done", facts(&[("x", true), ("y", true), ("z", true)], &["x", "y", "z"]), [&[], &[], &[]]),
        (
            "a set has gone",
            facts(&[("x", true), ("y", true), ("z", true)], &["old", "x", "y", "z"]),
            [&["old"], &[], &[]],
        ),
        ("pinned by another", facts(&[("x", true), ("y", true), ("z", true)], &["x"]), [&[], &[], &[]]),
        (
            "a runtime that does not tell",
            facts(&[("x", false), ("y", false), ("z", false)], &["x", "y", "z"]),
            [&[], &[], &[]],
        ),
        (
            "removed by hand, with its pin",
            facts(&[("x", true), ("z", true)], &["x", "z"]),
            [&[], &[], &["y"]],
        ),
    ];
    for (about, facts, [unpin, pin, pull]) in rows {
        let plan = plan(&sets, &facts, str::to_owned);
        assert_eq!((plan.unpin, plan.pin, plan.pull), (to(unpin), to(pin), to(pull)), "{about}");
    }
    let gone = plan(&[], &facts(&[], &["x", "y"]), str::to_owned);
    assert_eq!(gone.unpin, ["x", "y"]);
    assert!(!gone.is_empty() && plan(&[], &facts(&[], &[]), str::to_owned).is_empty());
    // An image that is kept under a longer name is not unpinned.
    let longer = plan(&[set("a", &["s"])], &facts(&[("s", false)], &["long/s"]), |i| format!("long/{i}"));
    assert!(longer.is_empty(), "{longer:?}");
}

fn to(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|t| (*t).to_owned()).collect()
}

#[test]
fn nothing_is_pulled_onto_a_node_that_cannot_take_it() {
    let gib = 1 << 30;
    let space = |free: u64| Some(Space { free: free * gib, total: 100 * gib, reserve: Reserve::of(None) });
    let sets = [set("a", &["x", "y"])];
    let base = || facts(&[("y", false)], &["old"]);
    for (about, facts, want) in [
        ("room", Facts { space: space(17), ..base() }, None),
        ("unknown", base(), None),
        (
            "full",
            Facts { space: space(14), ..base() },
            Some("storage available is less than minimum required: 14.0 of 100.0"),
        ),
        ("room for all", Facts { space: space(27), needed: 10 * gib, ..base() }, None),
        (
            "room for some",
            Facts { space: space(26), needed: 10 * gib, ..base() },
            Some(
                "1 missing images take about 10.0 GiB, by the sizes that their registries report; 26.0 of 100.0",
            ),
        ),
        ("no room is known", Facts { needed: u64::MAX, ..base() }, None),
        ("pressure", Facts { disk_pressure: true, ..base() }, Some("DiskPressure")),
        ("not ready", Facts { ready: false, space: space(0), ..base() }, Some("not Ready")),
    ] {
        let plan = plan(&sets, &facts, str::to_owned);
        let held = plan.held.map(|h| h.to_string());
        assert_eq!(held.is_some(), want.is_some(), "{about}: {held:?}");
        assert!(held.unwrap_or_default().contains(want.unwrap_or_default()), "{about}");
        // What needs no room is done in any case.
        assert_eq!((plan.unpin, plan.pin), (to(&["old"]), to(&["y"])), "{about}");
    }
    let done =
        plan(&sets, &Facts { space: space(0), ..facts(&[("x", true), ("y", true)], &[]) }, str::to_owned);
    assert_eq!(done.held, None, "a full disk is nobody's failure when nothing is missing");
    let master = Facts { control_plane: true, ..base() };
    assert_eq!(
        (plan(&sets, &master, str::to_owned).at_once, plan(&sets, &base(), str::to_owned).at_once),
        (1, 5)
    );
}

#[test]
fn a_layer_takes_its_room_twice_and_once_where_it_was_fetched() {
    let layer = |size: u64, fetched: bool| Layer { size, fetched };
    assert_eq!(needed(&[layer(5, false), layer(7, true)]), 17);
    assert_eq!(needed(&[layer(u64::MAX, false), layer(1, true)]), u64::MAX);
    assert_eq!(needed(&[]), 0);
}

#[test]
fn what_stays_free_is_what_the_kubelet_says() {
    for (settings, free, short) in [
        (None, 14, true),
        (None, 17, false),
        (Some("kind: KubeletConfiguration"), 14, true),
        (Some("evictionHard: {imagefs.available: 5%}"), 4, true),
        (Some("evictionHard: {imagefs.available: 5%}"), 7, false),
        (Some("evictionHard: {imagefs.available: 20Gi, nodefs.available: 1%}"), 19, true),
        (Some("evictionHard: {nodefs.available: 10%}"), 9, true),
        (Some("evictionHard: {memory.available: 100Mi}"), 3, false),
        (Some("evictionHard: {imagefs.available: 0%}"), 0, true),
        (Some("evictionHard: {imagefs.available: nonsense}"), 3, false),
        (Some("{"), 14, true),
    ] {
        let gib = 1 << 30;
        // A few bytes less than a hundred, as shares are of whole thousandths.
        let space = Space { free: free * gib, total: 100 * gib, reserve: Reserve::of(settings) };
        assert_eq!(space.is_short(), short, "{settings:?} {free}");
    }
    assert_eq!(Reserve::read("500M"), Some(Reserve::Bytes(500_000_000)));
    assert_eq!(Reserve::read("2.5%"), Some(Reserve::Share(25)));
}

#[test]
fn crio_gets_each_image_once_and_in_order() {
    let text = drop_in(&[set("b", &["y", "x"]), set("a", &["x", "w\"'"])]).unwrap();
    let table: toml::Table = text.parse().unwrap();
    let list = &table["crio"]["image"]["pinned_images"];
    let names: Vec<&str> = list.as_array().unwrap().iter().map(|v| v.as_str().unwrap()).collect();
    assert_eq!(names, ["w\"'", "x", "y"]);
    assert_eq!(drop_in(&[]), None);
    assert_eq!(drop_in(&[set("a", &[" ".trim()])]), None);
}
