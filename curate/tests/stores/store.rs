//! A folder in an object store, on an S3 server in this process that refuses requests, breaks off and fails to
//! answer.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use curate::read::{Format, Input, input_files};
use curate::store::{ObjectFolder, Put};

use crate::s3::{self, Answer, Objects};

/// Misbehaviour of the server.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    /// Answers every other request with 503.
    Busy,
    /// Closes the connection in the middle of every other body that it sends.
    Halves,
    /// Does what every other request asks for, and closes the connection instead of answering.
    Silent,
    /// Answers everything with 403.
    Forbidden,
}

/// An S3 server until the test ends, and a folder in it.
fn serve(fault: Fault, settings: &[(&str, &str)]) -> (Objects, ObjectFolder) {
    let (objects, options) = listening(fault, settings);
    let folder = ObjectFolder::open("s3://bucket/runs/one/", &options).unwrap();
    (objects, folder)
}

/// An S3 server until the test ends, and the settings of its clients.
fn listening(fault: Fault, settings: &[(&str, &str)]) -> (Objects, BTreeMap<String, String>) {
    let objects = Objects::default();
    let count = AtomicUsize::new(0);
    let address = s3::serve(objects.clone(), move |_| {
        let is_even = count.fetch_add(1, Ordering::SeqCst).is_multiple_of(2);
        match fault {
            Fault::Busy if is_even => Answer::Refusal(503),
            Fault::Halves if !is_even => Answer::Half,
            Fault::Silent if is_even => Answer::Silence,
            Fault::Forbidden => Answer::Refusal(403),
            Fault::None | Fault::Busy | Fault::Halves | Fault::Silent => Answer::Usual,
        }
    });
    let endpoint = format!("http://{address}");
    let mut options = BTreeMap::new();
    for (key, value) in [
        ("aws_endpoint", endpoint.as_str()),
        ("aws_allow_http", "true"),
        ("aws_region", "us-east-1"),
        ("aws_access_key_id", "test"),
        ("aws_secret_access_key", "test"),
    ]
    .iter()
    .chain(settings)
    {
        options.insert((*key).to_string(), (*value).to_string());
    }
    (objects, options)
}

#[test]
fn files_come_back_as_they_were_put_from_a_server_that_refuses_and_breaks_off() {
    for fault in [Fault::None, Fault::Busy, Fault::Halves] {
        let (objects, folder) = serve(fault, &[]);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let bytes: Vec<u8> = (0..300_000u32).flat_map(u32::to_le_bytes).collect();
        std::fs::write(&path, &bytes).unwrap();
        folder.put("clean/00000.sig", &path).unwrap();
        assert_eq!(objects.lock().unwrap()["runs/one/clean/00000.sig"], bytes);
        let size = bytes.len() as u64;
        assert_eq!(folder.size("clean/00000.sig").unwrap(), Some(size));
        assert_eq!(folder.size("clean/00001.sig").unwrap(), None);
        let back = dir.path().join("back");
        let mut file = std::fs::File::create(&back).unwrap();
        assert!(folder.fetch("clean/00000.sig", &mut file).unwrap());
        assert_eq!(std::fs::read(&back).unwrap(), bytes, "{fault:?}");
        assert!(!folder.fetch("clean/00001.sig", &mut file).unwrap());
        let listed = folder.list("clean").unwrap();
        assert_eq!(listed, [("clean/00000.sig".to_string(), size)], "{fault:?}");
    }
}

#[test]
fn removed_objects_are_gone_also_those_that_were_not_there() {
    for fault in [Fault::None, Fault::Busy, Fault::Silent] {
        let (objects, folder) = serve(fault, &[]);
        let names = ["clean/00001.sig", "clean/00002.sig"];
        for name in names {
            let key = format!("runs/one/{name}");
            objects.lock().unwrap().insert(key, b"x".to_vec());
        }
        for name in [names[1], names[1], "clean/00003.sig"] {
            folder.remove(name).unwrap();
        }
        let left: Vec<String> = objects.lock().unwrap().keys().cloned().collect();
        assert_eq!(left, ["runs/one/clean/00001.sig"], "{fault:?}");
    }
}

#[test]
fn an_object_is_replaced_only_while_it_is_the_one_that_was_read() {
    let (_, folder) = serve(Fault::Busy, &[]);
    assert_eq!(folder.read("m").unwrap(), None);
    let Put::Done(Some(first)) = folder.put_if("m", b"one", None).unwrap() else {
        panic!("the first put was refused");
    };
    assert_eq!(folder.put_if("m", b"two", None).unwrap(), Put::Other);
    let (bytes, version) = folder.read("m").unwrap().unwrap();
    assert_eq!(
        (bytes.as_slice(), version.as_deref()),
        (&b"one"[..], Some(first.as_str()))
    );
    let second = folder.put_if("m", b"two", Some(&first)).unwrap();
    assert!(matches!(second, Put::Done(Some(_))));
    assert_eq!(
        folder.put_if("m", b"three", Some(&first)).unwrap(),
        Put::Other
    );
    assert_eq!(folder.read("m").unwrap().unwrap().0, b"two");
}

#[test]
fn a_store_without_conditions_is_written_to_all_the_same() {
    let (_, folder) = serve(Fault::None, &[("aws_conditional_put", "disabled")]);
    for text in [b"one", b"two"] {
        assert!(matches!(
            folder.put_if("m", text, None).unwrap(),
            Put::Done(_)
        ));
    }
    assert_eq!(folder.read("m").unwrap().unwrap().0, b"two");
}

#[test]
fn what_a_store_refuses_is_named() {
    let (_, folder) = serve(Fault::Forbidden, &[]);
    for message in [
        folder.read("a/b").unwrap_err().to_string(),
        folder.put_if("a/b", b"", None).unwrap_err().to_string(),
        folder.list("a/b").unwrap_err().to_string(),
        folder.remove("a/b").unwrap_err().to_string(),
    ] {
        assert!(
            message.starts_with("s3://bucket/runs/one/a/b: "),
            "{message}"
        );
    }
    let wrong = BTreeMap::from([("aws_colour".to_string(), "red".to_string())]);
    let message = ObjectFolder::open("s3://bucket/x", &wrong).err().unwrap();
    assert!(message.to_string().contains("aws_colour"), "{message}");
    assert!(ObjectFolder::open("bucket/x", &BTreeMap::new()).is_err());
}

#[test]
fn a_split_of_a_dataset_in_a_store_is_that_of_its_card_or_of_names() {
    let (objects, options) = listening(Fault::None, &[]);
    let put = |name: &str, text: &str| {
        let mut objects = objects.lock().unwrap();
        objects.insert(format!("sets/one/{name}"), text.as_bytes().to_vec());
    };
    for name in ["data/a.jsonl", "data/dev.jsonl", "data/train.jsonl"] {
        put(name, "{\"text\":\"a\"}\n");
    }
    put(".gitattributes", "x");
    put("README.md", "---\nlicense: mit\n---\n");
    let input = |path: &str, split: &str| Input {
        path: path.to_string(),
        format: Format::Jsonl,
        dataset_split: Some(split.to_string()),
        options: options.clone(),
        ..Input::default()
    };
    let files = |split: &str| -> Vec<String> {
        let files = input_files(&[input("s3://bucket/sets/one/", split)]).unwrap();
        assert!(
            files
                .iter()
                .all(|file| file.dataset_split.as_deref() == Some(split))
        );
        files.into_iter().map(|file| file.file).collect()
    };
    assert_eq!(files("train"), ["data/train.jsonl"]);
    assert_eq!(files("validation"), ["data/dev.jsonl"]);
    put(
        "README.md",
        "---\nconfigs:\n- config_name: c\n  data_files:\n  - split: own\n    path: data/[at]*.jsonl\n---\n",
    );
    assert_eq!(files("own"), ["data/a.jsonl", "data/train.jsonl"]);
    for (path, split, want) in [
        (
            "s3://bucket/sets/one/",
            "train",
            "no split \"train\"; there are own",
        ),
        (
            "s3://bucket/sets/one/data/a.jsonl",
            "own",
            "a URL that ends in `/`",
        ),
    ] {
        let why = input_files(&[input(path, split)]).unwrap_err().to_string();
        assert!(why.contains(want), "{why}");
    }
}
