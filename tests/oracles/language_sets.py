#!/usr/bin/env python3
"""language_sets.py LANGID UNILEX LASER NOVELS OUT.tsv: gathers the texts that train and measure the built-in language model.

LANGID: folder with lingua-testdata, udhr2, bigbench-langid, gflanguages-samples (.tsv.zst: code TAB .. TAB text) and
justext-stoplists.json.zst. UNILEX: checkout of unicode-org/unilex. LASER: checkout of facebookresearch/LASER (Tatoeba).
NOVELS: .jsonl.zst of public-domain English novels, for a list of English words.
OUT has lines  split TAB source TAB code TAB text  (split: train, test) and  words TAB source TAB code TAB word TAB count.
One line in five of each source of sentences is for the test, chosen by a hash of its text; word lists and Tatoeba only
train. gflanguages repeats the declaration of human rights, so it is used only for languages that udhr2 lacks.
"""
import collections, hashlib, io, json, os, re, sys
import zstandard

LANGID, UNILEX, LASER, NOVELS, OUT = sys.argv[1:6]

# our code: udhr2 keys; unilex and tatoeba names where they differ from ours; BIG-bench names; jusText names
TABLE = """
af afr - afr Afrikaans Afrikaans|ak aka_asante,aka_akuapem,aka_fante - - Akan -|am amh - amh Amharic -|ar arb ar ara Arabic Arabic
as - - - Assamese -|az azj_latn,azj_cyrl az aze Azerbaijani Azerbaijani|be bel be bel Belarusian Belarusian|bg bul bg bul Bulgarian Bulgarian
bm bam bm - - -|bn ben bn ben Bengali Bengali|bo bod bo - Tibetan -|br bre br bre Breton Breton|bs bos_latn bs bos Bosnian Bosnian
ca cat ca-valencia cat Catalan Catalan|ceb ceb ceb ceb Cebuano -|ckb ckb - - Sorani -|co cos - - Corsican -|cs ces cs ces Czech Czech
cy cym cy cym - Welsh|da dan da dan Danish Danish|de deu de deu German German|dv div - - Divehi -|el ell_monotonic - ell Greek Greek
en eng - - English English|eo epo - epo Esperanto Esperanto|es spa es spa - Spanish|et est et est Estonian Estonian
eu eus eu eus Basque Basque|fa pes_1,pes_2 fa pes Farsi,Persian Persian|fi fin fi fin Finnish Finnish|fo fao fo fao Faroese -
fon fon fon - - -|fr fra fr fra French French|fy fri - fry Western_Frisian West_Frisian|ga gle ga gle Irish_Gaelic Irish
gd gla gd gla Scottish_Gaelic -|gl glg - glg Galician Galician|gn gug gn - Guarani -|gu guj gu - Gujarati Gujarati
ha hau_NG,hau_NE ha - - -|haw haw haw - Hawaiian -|he heb - heb Hebrew Hebrew|hi hin hi hin Hindi Hindi|hmn - - - - -
hr hrv hr hrv Croatian Croatian|ht hat_kreyol,hat_popular ht - Haitian_Creole Haitian|hu hun - hun Hungarian Hungarian|hy hye hy hye Eastern_Armenian Armenian
id ind id ind Indonesian Indonesian|ig ibo ig - Igbo Igbo|is isl is isl Icelandic Icelandic|it ita it ita Italian Italian|ja jpn - jpn Japanese -
jv jav jv jav Javanese Javanese|ka kat ka kat Georgian Georgian|ki - - - Kikuyu -|kk kaz kk kaz Kazahk Kazakh|km khm km khm Central_Khmer -
kn kan kn - Kannada Kannada|ko kor - kor Korean Korean|ku - - kur Kurdish Kurdish|ky kir ky - - Kyrgyz|la lat,lat_1 la lat Latin Latin
lb ltz - - Luxembourgish Luxembourgish|lg lug - - Luganda -|ln lin,lin_tones - - - -|lo lao lo - Lao -|lt lit lt lit Lithuanian Lithuanian
lv lav lv lvs Latvian Latvian|mg plt mg - Plateau_Malagasy,Malagasy -|mi mri mi - - -|mk mkd mk mkd Macedonian Macedonian|ml mal ml mal Malayalam Malayalam
mn khk - mon Mongolian -|mr mar mr mar Marathi Marathi|ms - ms zsm Malay Malay|mt mlt mt - Maltese Maltese|my mya - - Burmese -
nb nob nb nob Norwegian_Bokmal Norwegian_Bokmal|ne nep ne - Nepali Nepali|nl nld nl nld Dutch Dutch|nn nno - nno Nynorsk Norwegian_Nynorsk
nso nso - - Northern_Sotho -|ny nya_chechewa,nya_chinyanja ny - - -|oc lnc - oci Occitan Occitan|om gax om - - -|or - or - Oriya -
pa pan pa - Eastern_Panjabi -|pl pol pl pol Polish Polish|ps pbu ps - Pashto -|pt por_BR,por_PT pt por Portugese,portugues Portuguese
qu quz,quy qu - - Quechua|rn run rn - Kirundi -|ro ron ro ron Romanian Romanian|ru rus ru rus Russian Russian|rw kin rw - Kinyarwanda -
sd - - - Sindhi -|si - si - Sinhalese -|sk slk sk slk Slovak Slovak|sl slv sl slv Slovenian Slovenian|sm smo sm - Samoan -
sn sna sn - - -|so som so - Somali -|sq als sq sqi Tosk_Albanian,Albanian Albanian|sr srp_cyrl,srp_latn sr srp Serbian Serbian|st sot - - - -
su sun su - Sundanese Sundanese|sv swe sv swe Swedish Swedish|sw swh - swh Swahili Swahili|ta tam ta tam Tamil Tamil|te - te tel - Telugu
tg tgk - - Tajik -|th tha - tha Thai -|ti tir ti - - -|tk tuk_latn - tuk Turkmen Turkmen|tl tgl - tgl Tagalog,Filipino Tagalog
tn tsn tn - Tswana -|tr tur tr tur Turkish Turkish|ts tso_MZ - - Tsonga -|tt tat - tat Tatar -|ug uig_arab ug uig Uyghur -|uk ukr uk ukr Ukrainian Ukrainian
ur urd - urd Urdu Urdu|uz uzn_latn,uzn_cyrl uz uzb Uzbek Uzbek|vi vie vi vie - Vietnamese|wo wol - - - -|xh xho - xho Xhosa -
yi ydd - yid Yiddish -|yo yor yo - Yoruba Yoruba|za - za - Zhuang -|zh cmn_hans,cmn_hant - cmn Mandarin_Chinese -|zu zul - - Zulu -
ba - - - Bashkir -|cv - - - Chuvash Chuvash|sa san - - Sanskrit -|bho bho - - Bhojpuri -|mai mai mai - Maithili -|sah sah sah - Sakha -
os oss os - Ossetian -|ce - ce - Chechen -|as - - - - -|tpi tpi tpi - Tok_Pisin -|war war war war - Waray_Waray|ilo ilo ilo - Ilocano -
ast ast - ast Asturian Asturian|nds - - nds Dutch_Low_Saxon Low_Saxon|ee ewe ee - - -|ve ven - - Venda -|ss ssw - - Swati -|kab - kab kab Kabyle -
to ton to - Tongan -|ay ayr - - Aymara -|lus lus lus - Mizo_Lushai -|ti tir ti - - -|kl kal kl - Kalaallisut -
"""

udhr, unilex, tatoeba, bench, stops, codes = {}, {}, {}, {}, {}, set()
for entry in TABLE.replace("\n", "|").split("|"):
    if not entry.strip():
        continue
    code, u, x, t, b, s = entry.split()
    codes.add(code)
    for key, into in ((u, udhr), (x, unilex), (t, tatoeba), (b.replace("_", " "), bench), (s, stops)):
        for k in key.split(","):
            if k != "-":
                into[k] = code

def lines(name):
    data = zstandard.ZstdDecompressor().stream_reader(open(os.path.join(LANGID, name), "rb")).read()
    return data.decode("utf-8").split("\n")

out = open(OUT, "w", encoding="utf-8")
def sentence(source, code, text, test=True):
    text = " ".join(text.split())
    if not text:
        return
    fifth = test and hashlib.sha256(text.encode()).digest()[0] % 5 == 0
    out.write(f"{'test' if fifth else 'train'}\t{source}\t{code}\t{text}\n")

for line in lines("lingua-testdata-shared.tsv.zst"):
    if line.count("\t") >= 2:
        code, kind, text = line.split("\t", 2)
        sentence(f"lingua-{kind}", code, text)
for line in lines("udhr2-shared.tsv.zst"):
    key, _, text = line.partition("\t")
    if key in udhr:
        sentence("udhr", udhr[key], text)
for line in lines("bigbench-langid-shared.tsv.zst"):
    key, _, text = line.partition("\t")
    if key in bench:
        sentence("bigbench", bench[key], text)
for line in lines("gflanguages-samples.tsv.zst"):
    key, _, text = line.partition("\t")
    code = key.split("_")[0]
    if code in codes and code not in set(udhr.values()):
        sentence("gflanguages", code, text, test=False)
for file in sorted(os.listdir(os.path.join(LASER, "data/tatoeba/v1"))):
    key = file.rsplit(".", 1)[-1]
    if key in tatoeba and file.startswith("tatoeba."):
        for line in open(os.path.join(LASER, "data/tatoeba/v1", file), encoding="utf-8"):
            sentence("tatoeba", tatoeba[key], line, test=False)
    elif file == "tatoeba.fra-eng.eng" or file == "tatoeba.deu-eng.eng" or file == "tatoeba.jpn-eng.eng":
        for line in open(os.path.join(LASER, "data/tatoeba/v1", file), encoding="utf-8"):
            sentence("tatoeba", "en", line, test=False)
for name, code in sorted(unilex.items()):
    path = os.path.join(UNILEX, "data/frequency", name + ".txt")
    if not os.path.exists(path):
        continue
    rows = [r.rstrip("\n").split("\t") for r in open(path, encoding="utf-8")]
    rows = [(r[0], int(r[1])) for r in rows if len(r) == 2 and r[1].isdigit()]
    for word, count in sorted(rows, key=lambda r: (-r[1], r[0]))[:25000]:
        out.write(f"words\tunilex\t{code}\t{word}\t{count}\n")
for name, words in json.loads("\n".join(lines("justext-stoplists.json.zst"))).items():
    if name in stops:
        for rank, word in enumerate(words):
            out.write(f"words\tjustext\t{stops[name]}\t{word}\t{1000000 // (rank + 5)}\n")
counts = collections.Counter()
with zstandard.ZstdDecompressor().stream_reader(open(NOVELS, "rb")) as stream:
    for line in io.TextIOWrapper(stream, encoding="utf-8"):
        counts.update(re.findall(r"[^\W\d_]+", json.loads(line)["text"].lower()))
for word, count in sorted(counts.items(), key=lambda r: (-r[1], r[0]))[:25000]:
    out.write(f"words\tnovels\ten\t{word}\t{count}\n")
