//! How `mco` is linked. What it is not: anything that changes what the program does.

fn main() {
    // At a fixed address, as the programs of Kubernetes itself are. A program that can stand anywhere has sixty thousand
    // addresses to correct when it starts: 3 MiB more of every process.
    println!("cargo::rustc-link-arg-bins=-no-pie");
    println!("cargo::rerun-if-changed=build.rs");
}
