//! How `mco` is linked. What it is not: anything that changes what the program does.

fn main() {
    // At a fixed address, as the programs of Kubernetes itself are. A program that can stand anywhere has sixty thousand
    // addresses to correct when it starts: 3 MiB more of every process.
    println!("cargo::rustc-link-arg-bins=-no-pie");
    // What is rarely called stands apart, and the rest closer together.
    println!("cargo::rustc-link-arg-bins=-Wl,-z,keep-text-section-prefix");
    println!("cargo::rerun-if-changed=build.rs");
}
