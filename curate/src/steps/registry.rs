//! The registry of steps: one line each. Settings, rules and documentation are beside the step.

use crate::check::Problem;
use crate::extract::ExtractConfig;
use crate::filter::{
    BadWords, C4Quality, Dclm, Dolma, FileLanguage, Fineweb2, FinewebQuality, GopherQuality,
    GopherRepetition, GroupConfig, Issue, Length, License, Lines, MassiveText, Nemo, Notebook,
    Openwebmath, Openwebtext, OptOut, Redpajama, Repository, SampleConfig, SourceCode, Spans,
    TagConfig, UrlConfig,
};
use crate::language::LanguageConfig;
use crate::pii::PiiConfig;
use crate::quality::{
    ClassifierConfig, CodeConfig, DsirConfig, ExpressionConfig, PerplexityConfig, QualityConfig,
};
use crate::text::repair::NormalizeConfig;

/// Makes the enum of steps: a variant for each type of settings, named in a job file by the variant in snake case.
///
/// A type that cannot be opened does not compile. This does:
/// ```
/// use curate::contract::{Draft, Filter, Opening, StepConfig, StepScratch};
/// use curate::verdict::{Judge, KEEP, Verdict};
///
/// #[derive(Clone, Debug, PartialEq, serde::Deserialize, serde::Serialize)]
/// struct Mine;
/// impl Filter for Mine {
///     fn apply(&self, _: &mut Draft, _: &mut StepScratch, _: &mut Judge) -> Verdict { KEEP }
/// }
/// impl StepConfig for Mine {
///     fn name(&self) -> &'static str { "mine" }
///     fn check(&self, _: curate::contract::Problem<'_>) {}
///     fn open(&self, _: &Opening<'_>) -> curate::Result<Box<dyn Filter>> { Ok(Box::new(Mine)) }
/// }
/// curate::step_registry! { enum MySteps { Mine(Mine), } }
/// assert_eq!(MySteps::Mine(Mine).settings().name(), "mine");
/// ```
/// The same without `open` does not:
/// ```compile_fail,E0046
/// use curate::contract::{Draft, Filter, Opening, StepConfig, StepScratch};
/// use curate::verdict::{Judge, KEEP, Verdict};
///
/// #[derive(Clone, Debug, PartialEq, serde::Deserialize, serde::Serialize)]
/// struct Mine;
/// impl Filter for Mine {
///     fn apply(&self, _: &mut Draft, _: &mut StepScratch, _: &mut Judge) -> Verdict { KEEP }
/// }
/// impl StepConfig for Mine {
///     fn name(&self) -> &'static str { "mine" }
///     fn check(&self, _: curate::contract::Problem<'_>) {}
/// }
/// curate::step_registry! { enum MySteps { Mine(Mine), } }
/// ```
/// Nor does a registered type without the contract:
/// ```compile_fail,E0277
/// #[derive(Clone, Debug, PartialEq, serde::Deserialize, serde::Serialize)]
/// struct Mine;
/// curate::step_registry! { enum MySteps { Mine(Mine), } }
/// ```
#[macro_export]
macro_rules! step_registry {
    ($(#[$meta:meta])* $vis:vis enum $name:ident { $($variant:ident($settings:ty),)* }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, ::serde::Deserialize, ::serde::Serialize)]
        #[serde(rename_all = "snake_case")]
        $vis enum $name {
            $(#[doc = concat!("See [`", stringify!($settings), "`].")] $variant($settings),)*
        }

        impl $name {
            /// The step's settings.
            $vis fn settings(&self) -> &dyn $crate::contract::StepConfig {
                match self {
                    $($name::$variant(settings) => settings,)*
                }
            }
        }
    };
}

step_registry! {
    /// One step of the chain.
    pub enum Step {
        Extract(ExtractConfig),
        Normalize(NormalizeConfig),
        Language(LanguageConfig),
        Code(CodeConfig),
        Notebook(Notebook),
        Issue(Issue),
        Repository(Repository),
        FileLanguage(FileLanguage),
        License(License),
        SourceCode(SourceCode),
        GopherQuality(GopherQuality),
        GopherRepetition(GopherRepetition),
        C4(C4Quality),
        Fineweb(FinewebQuality),
        Dclm(Dclm),
        Fineweb2(Fineweb2),
        Dolma(Dolma),
        Nemo(Nemo),
        MassiveText(MassiveText),
        Openwebtext(Openwebtext),
        Openwebmath(Openwebmath),
        Redpajama(Redpajama),
        BadWords(BadWords),
        Lines(Lines),
        Url(UrlConfig),
        OptOut(OptOut),
        Length(Length),
        Pii(PiiConfig),
        Quality(QualityConfig),
        Classifier(ClassifierConfig),
        Perplexity(PerplexityConfig),
        Dsir(DsirConfig),
        Expression(ExpressionConfig),
        Tag(TagConfig),
        Spans(Spans),
        Sample(SampleConfig),
        Group(GroupConfig),
    }
}

impl Step {
    /// The step's key in a job file.
    pub fn name(&self) -> &'static str {
        self.settings().name()
    }

    /// Reports every contradiction.
    pub fn check(&self, problem: Problem<'_>) {
        let name = self.name();
        self.settings()
            .check(&mut |k, f, w| problem(&format!("{name}.{k}"), f, w));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_is_called_in_job_files_what_it_calls_itself() {
        // an unknown key makes serde list them all
        let error = serde_json::from_str::<Step>("{\"none\": {}}").unwrap_err();
        let message = error.to_string();
        let known: Vec<&str> = message.split('`').skip(3).step_by(2).collect();
        assert!(known.len() > 20, "{message}");
        for key in known {
            let step: Step = serde_json::from_str(&format!("{{\"{key}\": {{}}}}")).unwrap();
            assert_eq!(step.name(), key);
        }
    }
}
