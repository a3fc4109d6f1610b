//! Images in the store of a host of OSTree, against the fake programs of the parent module: which of them are removed, which layers are
//! pulled again, and how a pull finds room.

use super::*;

#[test]
fn images_that_no_deployment_needs_are_removed_and_those_that_boot_or_wait_are_not() {
    let mut rig = Rig::new(Images::Container);
    rig.put("usr/libexec/libostree/ext/ostree-container", "");
    rig.put(&format!("ostree/deploy/debian/deploy/{BEFORE}.1.origin"), "[origin]\nrefspec=debian:x\n");
    // Nothing was fetched for a MachineConfig yet: no program is asked.
    assert_eq!(rig.os.tidy().unwrap(), Vec::<String>::new());
    let record = |rig: &Rig, known: &[&str], fetched: &str| {
        let known: Vec<String> =
            known.iter().map(|tag| format!("registry:registry.lab:5055/lab/os:{tag}")).collect();
        let fetched = format!("registry:registry.lab:5055/lab/os:{fetched}");
        rig.put(
            "var/lib/machine-config-daemon/os-images.json",
            &serde_json::json!({"known": known, "fetched": fetched}).to_string(),
        );
    };
    let held = |tag: &str| REV_PARSE.replace("os_3A_v3", &format!("os_3A_{tag}"));
    // v1 was given up, v2 was removed by hand, v3 is staged, v4 waits for its update, latest runs.
    record(&rig, &["latest", "v1", "v2", "v3", "v4"], "v4");
    rig.talk
        .says(ADMIN, admin(true))
        .says(&held("v4"), format!("{STAGED}\n"))
        .says(&held("v1"), format!("{BEFORE}\n"))
        .fails(&held("v2"), "error: Refspec not found")
        .says(
            &writable("container image remove --repo /ostree/repo registry:registry.lab:5055/lab/os:v1"),
            "",
        )
        .says("/usr/bin/ostree admin cleanup", "Freed objects: 139.3 MB\n");
    let gone = rig.os.tidy().unwrap();
    assert_eq!(gone, ["v1", "v2"].map(|tag| format!("registry:registry.lab:5055/lab/os:{tag}")));
    rig.talk.says(ADMIN, admin(true));
    assert!(rig.os.tidy().unwrap().is_empty(), "they are removed once");
    // What has arrived of a pull that was cut is needed by the next try.
    record(&rig, &["latest", "v1", "v4"], "v4");
    rig.talk.says(ADMIN, admin(false)).fails(&held("v4"), "error: Refspec not found");
    assert!(rig.os.tidy().unwrap().is_empty());
    // A deployment whose image cannot be told may be of any.
    rig.talk.says(ADMIN, "what?\n");
    assert!(rig.os.tidy().unwrap_err().why.contains("what?"));
    rig.talk.done();
}

#[test]
fn a_plan_is_told_how_large_another_image_is() {
    for images in [Images::Bootc, Images::Container] {
        let mut rig = Rig::new(images);
        let now = rig.now();
        rig.put("usr/bin/skopeo", "");
        rig.asks(1, false);
        assert_eq!(rig.os.image_size(&now).unwrap(), None);
        rig.asks(1, false);
        rig.talk.says(
            &format!("/usr/bin/skopeo inspect --no-tags docker://{V3}"),
            r#"{"LayersData":[{"Size":7}]}"#,
        );
        let target = Deployment { image: V3.to_owned(), ..now.clone() };
        assert_eq!(rig.os.image_size(&target).unwrap(), Some(7));
        // One that is named by its digest, and that the store has, is not pulled.
        let by_digest = format!("registry.lab:5055/lab/os@sha256:{}", "ab".repeat(32));
        let target = Deployment { image: by_digest.clone(), ..now };
        let held = REV_PARSE.replace("os_3A_v3", &format!("os_40_sha256_3A_{}", "ab".repeat(32)));
        rig.asks(1, false);
        rig.talk.says(&held, format!("{STAGED}\n"));
        assert_eq!(rig.os.image_size(&target).unwrap(), None);
        rig.asks(1, false);
        rig.talk.fails(&held, "error: Refspec not found").says(
            &format!("/usr/bin/skopeo inspect --no-tags docker://{by_digest}"),
            r#"{"LayersData":[{"Size":7}]}"#,
        );
        assert_eq!(rig.os.image_size(&target).unwrap(), Some(7));
        rig.talk.done();
    }
}

#[test]
fn second_names_of_layers_do_not_outlive_a_clean_up_that_was_cut_off() {
    let mut rig = Rig::new(Images::Container);
    rig.put("usr/libexec/libostree/ext/ostree-container", "");
    let names = "ostree/repo/refs/heads";
    // The power failed while room was made for a pull, and the pool went back: no pull follows.
    for layer in ["one", "two"] {
        rig.put(&format!("{names}/machine-config/arrived/{layer}"), "");
    }
    rig.put(&format!("{names}/ostree/container/blob/two"), "");
    let refs = |words: &str| writable(&format!("refs --repo=/ostree/repo {words}"));
    let at = rig.dir.path().join(names).join("machine-config/arrived");
    rig.talk.says(&refs("--create ostree/container/blob/one machine-config/arrived/one"), "").says_meanwhile(
        &refs("--delete machine-config/arrived/one machine-config/arrived/two"),
        "",
        move || std::fs::remove_dir_all(at).unwrap(),
    );
    assert!(rig.os.tidy().unwrap().is_empty());
    rig.talk.done();
    assert!(rig.os.tidy().unwrap().is_empty(), "there is nothing left to do");
}

#[test]
fn what_a_pull_that_failed_or_had_no_end_stored_last_is_pulled_again() {
    let mut rig = Rig::new(Images::Container);
    rig.put("usr/libexec/libostree/ext/ostree-container", "");
    let target = Deployment { image: V3.to_owned(), ..rig.now() };
    let pulls = writable(&format!("container image pull /ostree/repo ostree-unverified-registry:{V3}"));
    let forgets =
        |layer: &str| writable(&format!("refs --repo=/ostree/repo --delete ostree/container/blob/{layer}"));
    let folder = "ostree/repo/refs/heads/ostree/container/blob";
    let layer = |rig: &Rig, name: &str, seconds: u64| {
        rig.put(&format!("{folder}/{name}"), "");
        let file = std::fs::File::open(rig.dir.path().join(folder).join(name)).unwrap();
        file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
    };
    layer(&rig, "old", 3);
    rig.asks(1, false);
    rig.talk.fails(&pulls, "exit status: 1: FinishPipe: corrupted blob, expecting sha256:88bd");
    // Nothing came.
    let why = rig.os.fetch(&target, &Pull::default()).unwrap_err().why;
    assert!(why.contains("nothing of it is used"), "{why}");
    // The agent, or the power, ended in a pull: nobody knows what became of its last layer.
    layer(&rig, "cut", 5);
    let record = "var/lib/machine-config-daemon/os-images.json";
    let text = std::fs::read_to_string(rig.dir.path().join(record)).unwrap();
    rig.put(record, &text.replace("\"pulling\":false", "\"pulling\":true"));
    rig.asks(1, false);
    let metadata =
        format!("/usr/bin/ostree container image metadata --repo /ostree/repo --config registry:{V3}");
    rig.talk.says(&forgets("cut"), "").says(&pulls, "").says(&metadata, configuration("ostree.bootable"));
    rig.os.fetch(&target, &Pull::default()).unwrap();
    let text = std::fs::read_to_string(rig.dir.path().join(record)).unwrap();
    assert!(text.contains("\"pulling\":false"), "{text}");
    rig.talk.done();
}

#[test]
fn a_pull_that_finds_the_store_full_frees_superseded_images_once_and_goes_on_with_what_has_arrived() {
    let mut rig = Rig::new(Images::Container);
    rig.put("usr/libexec/libostree/ext/ostree-container", "");
    rig.put("ostree/repo/config", "[core]\nmin-free-space-size=0MB\n");
    let record = "var/lib/machine-config-daemon/os-images.json";
    let image = |tag: &str| format!("registry:registry.lab:5055/lab/os:{tag}");
    // v1 was given up; latest runs, v2 is what the rollback was made of.
    let known = ["latest", "v1", "v2"].map(image);
    rig.put(record, &serde_json::json!({"known": known, "fetched": image("v2")}).to_string());
    let rollback = format!("ostree/deploy/debian/deploy/{BEFORE}.1.origin");
    rig.put(
        &rollback,
        "[origin]\ncontainer-image-reference=ostree-unverified-registry:registry.lab:5055/lab/os:v2\n",
    );
    let target = Deployment { image: V3.to_owned(), ..rig.now() };
    let pulls = writable(&format!("container image pull /ostree/repo ostree-unverified-registry:{V3}"));
    let metadata =
        format!("/usr/bin/ostree container image metadata --repo /ostree/repo --config registry:{V3}");
    let refs = |words: &str| writable(&format!("refs --repo=/ostree/repo {words}"));
    let held = REV_PARSE.replace("os_3A_v3", "os_3A_v1");
    let full = "layers needed: 2 (9000000.0 TB)\n";
    let kept = "ostree/repo/refs/heads/machine-config/arrived";
    let frees = |rig: &Rig| {
        rig.talk
            .says(ADMIN, admin(false))
            .says(&held, format!("{BEFORE}\n"))
            .says(&writable(&format!("container image remove --repo /ostree/repo {}", image("v1"))), "")
            .says("/usr/bin/ostree admin cleanup", "Freed objects: 139.3 MB\n");
    };
    // The fake says a size that does not fit and ends well; the real program is ended by the runner.
    rig.asks(1, false);
    rig.talk.says(&pulls, full).says(&metadata, configuration("ostree.bootable"));
    let pull = Pull::default();
    rig.os.fetch(&target, &pull).unwrap();
    assert!(pull.too_large().is_some());
    // A layer has arrived when the disk is full: it keeps its name.
    let layer =
        |rig: &Rig, name: &str| rig.put(&format!("ostree/repo/refs/heads/ostree/container/blob/{name}"), "");
    layer(&rig, "older");
    rig.asks(1, false);
    // OSTree refuses the object that does not fit, and leaves room in which a smaller one would.
    let exceeded = "exit status: 1: min-free-space-size 1TB would be exceeded";
    rig.talk.fails(&pulls, exceeded);
    frees(&rig);
    rig.talk.says(&pulls, "").says(&metadata, configuration("ostree.bootable"));
    rig.os.fetch(&target, &Pull::default()).unwrap();
    rig.talk.done();
    // Freed once: if it is still full, it ends and says why. So does any other error, with nothing removed.
    let superseded = serde_json::json!({"known": known, "fetched": image("v2")}).to_string();
    rig.put(record, &superseded);
    rig.asks(1, false);
    rig.talk.fails(&pulls, exceeded);
    frees(&rig);
    rig.talk.fails(&pulls, exceeded);
    let why = rig.os.fetch(&target, &Pull::default()).unwrap_err().why;
    assert!(why.contains("would be exceeded") && why.contains("df -h /sysroot"), "{why}");
    rig.put(record, &superseded);
    for (said, cancelled) in [("exit status: 1: connection reset", false), (exceeded, true)] {
        let pull = Pull::default();
        if cancelled {
            pull.cancel();
        }
        rig.asks(1, false);
        rig.talk.fails(&pulls, said);
        rig.os.fetch(&target, &pull).unwrap_err();
        rig.talk.done();
    }
    rig.put("ostree/repo/config", "[core]\nmin-free-space-size=9000000TB\n");
    // No room before the pull: freed there, but that does not help.
    rig.asks(1, false);
    frees(&rig);
    let why = rig.os.fetch(&target, &Pull::default()).unwrap_err().why;
    assert!(why.contains("no room for an image"), "{why}");
    rig.talk.done();

    // In the middle of the pull.
    rig.put(record, &serde_json::json!({"known": known, "fetched": image("v2")}).to_string());
    rig.put("ostree/repo/config", "[core]\nmin-free-space-size=0MB\n");
    rig.asks(1, false);
    rig.talk.fails_meanwhile(&pulls, "exit status: 1: No space left on device", {
        let at = rig.dir.path().to_owned();
        move || {
            let put = |path: &str, text: &str| {
                std::fs::create_dir_all(at.join(path).parent().unwrap()).unwrap();
                std::fs::write(at.join(path), text).unwrap();
            };
            put("ostree/repo/refs/heads/ostree/container/blob/one", "");
            put("ostree/repo/refs/heads/ostree/container/blob/two", "");
            put("ostree/repo/config", "[core]\nmin-free-space-size=9000000TB\n");
            let two =
                std::fs::File::open(at.join("ostree/repo/refs/heads/ostree/container/blob/two")).unwrap();
            two.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(9_000_000_000)).unwrap();
        }
    });
    let at = rig.dir.path().to_owned();
    let remove = move |path: &'static str| {
        let at = at.clone();
        move || std::fs::remove_file(at.join(path)).unwrap()
    };
    // The one that was stored last may not be what its digest says.
    rig.talk.says_meanwhile(
        &refs("--delete ostree/container/blob/two"),
        "",
        remove("ostree/repo/refs/heads/ostree/container/blob/two"),
    );
    rig.talk.says(ADMIN, admin(false));
    let at = rig.dir.path().to_owned();
    rig.talk.says_meanwhile(
        &refs("--create machine-config/arrived/one ostree/container/blob/one"),
        "",
        move || {
            std::fs::create_dir_all(at.join(kept)).unwrap();
            std::fs::write(at.join(kept).join("one"), "").unwrap();
        },
    );
    rig.talk.says(&held, format!("{BEFORE}\n"));
    let at = rig.dir.path().to_owned();
    rig.talk
        .says_meanwhile(
            &writable(&format!("container image remove --repo /ostree/repo {}", image("v1"))),
            "",
            remove("ostree/repo/refs/heads/ostree/container/blob/one"),
        )
        .says_meanwhile("/usr/bin/ostree admin cleanup", "Freed objects: 139.3 MB\n", move || {
            std::fs::write(at.join("ostree/repo/config"), "[core]\nmin-free-space-size=0MB\n").unwrap();
        })
        .says(&refs("--create ostree/container/blob/one machine-config/arrived/one"), "")
        .says_meanwhile(
            &refs("--delete machine-config/arrived/one"),
            "",
            remove("ostree/repo/refs/heads/machine-config/arrived/one"),
        )
        .says(&pulls, "layers already present: 1; layers needed: 1 (1.0 MB)\n")
        .says(&metadata, configuration("ostree.bootable"));
    let pull = Pull::default();
    rig.os.fetch(&target, &pull).unwrap();
    assert_eq!(pull.progress().unwrap().total, 1_000_000, "the size of what is still missing");
    let text = std::fs::read_to_string(rig.dir.path().join(record)).unwrap();
    assert!(!text.contains("os:v1") && text.contains("os:v2") && text.contains("os:latest"), "{text}");
    rig.talk.done();

    // Nothing is superseded any more: it ends, and says why.
    rig.asks(1, false);
    rig.talk.fails_meanwhile(&pulls, "exit status: 1: No space left on device", {
        let at = rig.dir.path().join("ostree/repo/config");
        move || std::fs::write(at, "[core]\nmin-free-space-size=9000000TB\n").unwrap()
    });
    rig.talk.says(ADMIN, admin(false));
    let why = rig.os.fetch(&target, &Pull::default()).unwrap_err().why;
    assert!(why.contains("No space left") && why.contains("df -h /sysroot"), "{why}");
    rig.talk.done();
    // An agent that ended while it made room: the next pull gives the layer its name again.
    rig.put("ostree/repo/config", "[core]\nmin-free-space-size=0MB\n");
    rig.put(&format!("{kept}/one"), "");
    rig.asks(1, false);
    rig.talk
        .says(&refs("--create ostree/container/blob/one machine-config/arrived/one"), "")
        .says(&refs("--delete machine-config/arrived/one"), "")
        .says(&pulls, "")
        .says(&metadata, configuration("ostree.bootable"));
    rig.os.fetch(&target, &Pull::default()).unwrap();
    rig.talk.done();
}
