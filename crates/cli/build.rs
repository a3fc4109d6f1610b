//! How `mco` is linked. What it is not: anything that changes what the program does, with one exception: how names are looked
//! up (`link/resolver.c`).

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    // At a fixed address, as the programs of Kubernetes itself are. A program that can stand anywhere has sixty thousand
    // addresses to correct when it starts: 3 MiB more of every process.
    println!("cargo::rustc-link-arg-bins=-no-pie");
    // What is rarely called stands apart, and the rest closer together.
    println!("cargo::rustc-link-arg-bins=-Wl,-z,keep-text-section-prefix");
    release();
    resolver()?;
    println!("cargo::rerun-if-changed=build.rs");
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "what cargo tells a build script stands in its environment")]
fn is(name: &str, wanted: &str) -> bool {
    std::env::var(name).is_ok_and(|value| value == wanted)
}

/// What runs stands side by side, as `cargo xtask order` has seen it, and the much that hardly ever runs apart: a process
/// holds 64 KiB of the program for each place that it has touched. Names that are not there are passed over. Functions that
/// have the same instructions, as the many copies of generic ones, stand there once. Only for the target whose linker
/// (LLVM's, in Rust's own tools) knows the flags and whose names the list has.
#[expect(clippy::disallowed_methods, reason = "what cargo tells a build script stands in its environment")]
fn release() {
    let here = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let list = format!("{here}/order/x86_64-unknown-linux-gnu.txt");
    let tables = format!("{here}/link/no-unwind-tables.ld");
    println!("cargo::rerun-if-changed={list}");
    println!("cargo::rerun-if-changed={tables}");
    if is("PROFILE", "release") && is("TARGET", "x86_64-unknown-linux-gnu") {
        println!("cargo::rustc-link-arg-bins=-Wl,--symbol-ordering-file={list}");
        println!("cargo::rustc-link-arg-bins=-Wl,--no-warn-symbol-ordering");
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
        // Texts that are the end of another one are kept once.
        println!("cargo::rustc-link-arg-bins=-Wl,-O2");
        println!("cargo::rustc-link-arg-bins=-Wl,-T,{tables}");
    }
}

/// An object file of its own, not a library: nothing calls it, so nothing would be taken from a library.
fn resolver() -> Result<(), Box<dyn Error>> {
    const SOURCE: &str = "link/resolver.c";
    println!("cargo::rerun-if-changed={SOURCE}");
    if is("CARGO_CFG_TARGET_ENV", "gnu") {
        for object in cc::Build::new().file(SOURCE).try_compile_intermediates()? {
            println!("cargo::rustc-link-arg-bins={}", object.display());
        }
    }
    Ok(())
}
