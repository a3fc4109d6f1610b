//! Tests of the reading of dumps: shapes, files that are cut short, and files that matter.

use super::*;
use std::io::Write;

fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
    dir
}

fn gzip(text: &str) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(vec![], flate2::Compression::fast());
    out.write_all(text.as_bytes()).unwrap();
    out.finish().unwrap()
}

fn names(dump: &Dump) -> Vec<String> {
    let name = |v: &Value| v["metadata"]["name"].as_str().unwrap_or("?").to_owned();
    dump.objects.iter().map(|(_, v)| format!("{} {}", v["kind"].as_str().unwrap_or("?"), name(v))).collect()
}

#[test]
fn a_dump_is_read_in_every_shape_that_tools_write() {
    let packed = gzip("kind: Pod\nmetadata: {name: packed}\n");
    let dir = folder(&[
        ("a/core/nodes.yaml", b"---\napiVersion: v1\nkind: NodeList\nitems:\n- metadata: {name: listed}\n"),
        ("a/core/pods.json", br#"{"kind":"List","items":[{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"name":"deep"}}]}]}"#),
        ("b/lines.json", b"{\"kind\":\"Pod\",\"metadata\":{\"name\":\"one\"}}\n{\"kind\":\"Pod\",\"metadata\":{\"name\":\"two\"}}\n"),
        ("b/array.json", br#"[{"kind":"Event","metadata":{"name":"e"}}, 5, "log"]"#),
        ("b/many.yaml", b"\xef\xbb\xbfkind: Node\nmetadata: {name: first}\n---\n# nothing\n---\nkind: Event\n---\nkind: Node\nmetadata: {name: second}\n"),
        ("c/packed.yaml.gz", &packed),
        ("c/broken.yaml", b"a: [1\nlog line: {"),
        ("c/binary.json", b"\xff\xfe\x00"),
        ("c/cut.json.gz", &packed[..10]),
        ("c/insights.tar.gz", b"x"),
        ("c/kubelet.log", b"kind: Node\n"),
    ]);
    std::os::unix::fs::symlink("/nowhere", dir.path().join("c/link.yaml")).unwrap();
    let dump = Dump::read(&[dir.path().to_owned()]).unwrap();
    let want = [
        "Node listed",
        "Pod deep",
        "Event e",
        "Pod one",
        "Pod two",
        "Node first",
        "Event ?",
        "Node second",
        "Pod packed",
    ];
    assert_eq!(names(&dump), want);
    let notes = dump.notes.join("\n");
    for word in [
        "link.yaml: skipped",
        "broken.yaml: skipped",
        "binary.json: skipped",
        "cut.json.gz: skipped",
        "insights.tar.gz",
    ] {
        assert!(notes.contains(word), "{word} in {notes}");
    }
    assert_eq!(dump.notes.len(), 5, "{notes}");
    assert!(dump.objects[0].0.ends_with("a/core/nodes.yaml"));
}

#[test]
fn what_matters_and_cannot_be_read_is_an_error_that_names_it() {
    for (name, text) in [
        ("nodes.yaml", "apiVersion: v1\nkind: NodeList\nitems:\n- metadata: {name: [\n"),
        ("pool.json", "{\"kind\": \"MachineConfigPool\", \"metadata\": {"),
        ("streams.yaml", "kind: OSImageStream\nmetadata: {name: [\n"),
        ("gates.yaml", "kind: FeatureGate\nmetadata: {name: [\n"),
        ("costs.yaml", "kind: MachineConfiguration\nmetadata: {name: [\n"),
        ("pins.yaml", "kind: MachineConfigNodeList\nitems: [{\n"),
    ] {
        let dir = folder(&[(name, text.as_bytes()), ("ok.yaml", b"kind: Event\n")]);
        let error = Dump::read(&[dir.path().to_owned()]).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("depends on"), "{error}");
    }
    // A file that is named as an argument must be readable, whatever it holds; an archive must be unpacked first.
    let dir = folder(&[
        ("x.yaml", b"a: [1"),
        ("dump.tar.gz", b""),
        ("s.yaml", b"kind: Secret\ndata: {a: \"hunter2\n"),
    ]);
    for (name, word) in [("x.yaml", "x.yaml"), ("dump.tar.gz", "unpack"), ("nowhere.yaml", "cannot read")] {
        let error = api::formats::text::chain(&Dump::read(&[dir.path().join(name)]).unwrap_err());
        assert!(error.contains(word), "{error}");
    }
    let error = api::formats::text::chain(&Dump::read(&[dir.path().join("s.yaml")]).unwrap_err());
    assert!(!error.contains("hunter2"), "{error}");
    let empty = folder(&[("notes.txt", b"kind: Node")]);
    let error = Dump::read(&[empty.path().to_owned()]).unwrap_err().to_string();
    assert!(error.contains("no .yaml"), "{error}");
}

#[test]
fn a_large_cluster_is_read() {
    let node = |i: usize| {
        let labels: Vec<String> = (0..116).map(|l| format!("l{l}: x")).collect();
        format!("kind: Node\nmetadata:\n  name: n{i}\n  labels: {{{}}}\n", labels.join(", "))
    };
    let many: Vec<String> = (0..1_100).map(node).collect();
    let dir = folder(&[("nodes.yaml", many.join("---\n").as_bytes())]);
    assert_eq!(Dump::read(&[dir.path().to_owned()]).unwrap().objects.len(), 1_100);
}
