//! The programs of the documents.

use std::fs;

fn read(name: &str) -> String {
    fs::read_to_string(name).unwrap_or_else(|err| panic!("{name}: {err}"))
}

/// Returns the only block of Rust of a page.
fn block(page: &str) -> String {
    let (_, rest) = page.split_once("```rust\n").expect("the page has a block of Rust");
    rest.split_once("```").expect("the block has an end").0.to_owned()
}

/// The program of the README is a test of the library's documentation; that of the page is a part of it.
#[test]
fn the_page_has_a_part_of_the_readme() {
    // cargo runs a test in the folder of its package. Where the program was built may be another clone.
    let readme = block(&read("../../sdk/rust/README.md"));
    let page = block(&read("../../docs/packs.md"));
    assert!(readme.contains(&page), "the program of docs/packs.md is not in the README:\n{page}");
    assert!(read("src/lib.rs").starts_with("#![doc = include_str!(\"../README.md\")]"));
}
