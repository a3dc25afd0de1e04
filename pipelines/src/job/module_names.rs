//! Names of modules of transformers where a job names our layers.

/// The layers of `lora.targets` that a module of this name, such as `q_proj`, is a part of; `keys`: the path of the key.
pub(super) fn target_of(keys: &[String], module: &str) -> Option<&'static str> {
    let is_list = keys.iter().rev().any(|key| key == "targets");
    let plain = module.replace('_', "").to_lowercase();
    let target = match plain.as_str() {
        "qproj" | "kproj" | "vproj" | "qkvproj" | "cattn" | "querykeyvalue" => "qkv",
        "oproj" | "outproj" => "out",
        "gateproj" | "upproj" | "gateupproj" | "cfc" => "fc1",
        "downproj" => "fc2",
        "lmhead" => "head",
        _ => return None,
    };
    is_list.then_some(target)
}

#[cfg(test)]
mod tests {
    use super::super::load::problems;

    #[test]
    fn modules_of_transformers_among_targets_are_one_problem_with_the_layers_they_are_in() {
        for (name, found) in [
            ("q_proj", r#""q_proj"; did you mean "qkv"?"#),
            ("qproj", r#""qproj"; did you mean "qkv"?"#),
            ("down_proj", r#""down_proj"; did you mean "fc2"?"#),
            ("expert", r#""expert"; did you mean "experts"?"#),
        ] {
            let text = format!(
                "[model]\nfamily = 'llama'\nlayers = 2\nd_model = 32\nheads = 4\n[train]\ninit_from = 'x'\n\
                 [finetune]\nmethod = 'lora'\ntrain = ['a']\nlora = {{ targets = ['{name}'] }}\n"
            );
            let of_targets: Vec<_> = problems(&text.parse().unwrap())
                .into_iter()
                .filter(|one| one.key.contains("targets"))
                .collect();
            let [one] = &of_targets[..] else {
                panic!("one problem");
            };
            assert_eq!(
                (&*one.key, &*one.found),
                ("finetune.lora.targets[0]", found)
            );
        }
    }
}
