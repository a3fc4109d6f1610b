//! How `mco` is linked. What it is not: anything that changes what the program does.

fn main() {
    // At a fixed address, as the programs of Kubernetes itself are. A program that can stand anywhere has sixty thousand
    // addresses to correct when it starts: 3 MiB more of every process.
    println!("cargo::rustc-link-arg-bins=-no-pie");
    // What is rarely called stands apart, and the rest closer together.
    println!("cargo::rustc-link-arg-bins=-Wl,-z,keep-text-section-prefix");
    order();
    println!("cargo::rerun-if-changed=build.rs");
}

/// What runs stands side by side, as `cargo xtask order` has seen it, and the much that hardly ever runs apart: a process
/// holds 64 KiB of the program for each place that it has touched. Names that are not there are passed over. Only for
/// the target whose linker (LLVM's, in Rust's own tools) knows the flag and whose names the list has.
#[expect(clippy::disallowed_methods, reason = "what cargo tells a build script stands in its environment")]
fn order() {
    let is = |name: &str, wanted: &str| std::env::var(name).is_ok_and(|value| value == wanted);
    let here = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let list = format!("{here}/order/x86_64-unknown-linux-gnu.txt");
    println!("cargo::rerun-if-changed={list}");
    if is("PROFILE", "release") && is("TARGET", "x86_64-unknown-linux-gnu") {
        println!("cargo::rustc-link-arg-bins=-Wl,--symbol-ordering-file={list}");
        println!("cargo::rustc-link-arg-bins=-Wl,--no-warn-symbol-ordering");
    }
}
