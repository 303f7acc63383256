"""Some 300 JSON schemas after the shapes of public suites: what models are asked for by tools, by pydantic and by OpenAPI files. `ACCEPTED`
are followed, `REFUSED` are a 400; each maps a name to a schema."""

WORD = {"type": "string", "minLength": 1, "maxLength": 12}
LINE = {"type": "string", "minLength": 1, "maxLength": 40}
SMALL = {"type": "integer", "minimum": 0, "maximum": 100}


def obj(required=None, closed=True, **properties):
    """All properties are required unless `required` says which."""
    names = list(properties) if required is None else required
    return {"type": "object", "properties": properties, "required": names, **({"additionalProperties": False} if closed else {})}


def nested(depth, leaf):
    return leaf if depth == 0 else obj(name=WORD, inner=nested(depth - 1, leaf))


def numbers():
    for low, high in [(0, 1), (1, 10), (-5, 5), (-100, -50), (0, 255), (1, 31), (1990, 2030), (-273, 1000), (99, 101), (7, 7), (0, 4294967295), (-1, 999999)]:
        yield f"integer_{low}_{high}", {"type": "integer", "minimum": low, "maximum": high}
        yield f"number_{low}_{high}", {"type": "number", "minimum": low, "maximum": high}
    for low, high in [(0, 1), (-0.5, 0.5), (36.5, 42.25), (0.001, 0.002), (-1000.5, -999.5)]:
        yield f"fraction_{low}_{high}", {"type": "number", "exclusiveMinimum": low, "exclusiveMaximum": high}
    for k in (2, 3, 7, 10, 25, 100):
        yield f"multiple_{k}", {"type": "integer", "multipleOf": k, "minimum": 0, "maximum": 100 * k}
    yield "price", {"type": "number", "multipleOf": 0.01, "minimum": 0, "maximum": 1000}
    yield "positive", {"type": "integer", "exclusiveMinimum": 0, "maximum": 10**6}
    yield "draft4_exclusive", {"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer", "minimum": 0, "exclusiveMinimum": True, "maximum": 9}


def strings():
    for low, high in [(0, 0), (1, 1), (0, 5), (3, 3), (5, 8), (10, 20), (1, 60)]:
        yield f"length_{low}_{high}", {"type": "string", "minLength": low, "maxLength": high}
    patterns = {
        "zip": r"^[0-9]{5}(-[0-9]{4})?$", "phone": r"^\(\d{3}\) \d{3}-\d{4}$", "iso_date": r"^\d{4}-(0[1-9]|1[0-2])-\d{2}$", "hex": r"^#[0-9a-fA-F]{6}$",
        "slug": r"^[a-z]+(-[a-z]+){0,3}$", "version": r"^\d{1,2}\.\d{1,2}\.\d{1,2}$", "plate": r"^[A-Z]{1,3}-[A-Z]{1,2} [1-9]\d{0,3}$", "yes": r"^(yes|no|maybe)$",
        "currency": r"^[A-Z]{3}$", "hash": r"^[0-9a-f]{40}$", "time": r"^([01]\d|2[0-3]):[0-5]\d$", "quoted": r'^"[a-z]{1,5}"$', "path": r"^(/[a-z]{1,8}){1,4}$",
        "umlaut": r"^[äöü]{2,4}$", "cyrillic": r"^[а-я]{3,6}$", "emoji": r"^[😀-😄]{1,3}$", "bang": r"^hello there indeed\!$", "backslash": r"^C:\\[a-z]{1,8}$",
        "isbn": r"^97[89]-\d-\d{2}-\d{6}-\d$", "sku": r"^[A-Z]{2}\d{4}[xyz]?$", "sentence": r"^[A-Z][a-z]{1,9}( [a-z]{1,9}){1,5}\.$"}
    for name, pattern in patterns.items():
        yield f"pattern_{name}", {"type": "string", "pattern": pattern}
    yield "pattern_and_length", {"type": "string", "pattern": "^[ab]*$", "minLength": 4, "maxLength": 6}
    yield "pattern_inside", {"type": "string", "pattern": "x[0-9]", "maxLength": 10}
    for name in ("date", "time", "date-time", "uuid", "ipv4", "ipv6", "duration"):
        yield f"format_{name}", {"type": "string", "format": name}
    yield "format_email", {"type": "string", "format": "email", "maxLength": 30}
    yield "format_hostname", {"type": "string", "format": "hostname", "maxLength": 30}


def values():
    sets = {
        "colours": ["red", "green", "blue"], "numbers": [1, 2, 3], "mixed": ["a", 1, None, True, 2.5], "unicode": ["日本", "Zürich", "ñandú", "😊"], "prefixes": ["a", "ab", "abc"],
        "quotes": ['"', "\\", "\n", "/", "a\tb"], "lists": [[1, 2], [], ["x"]], "objects": [{"a": 1}, {"a": 2, "b": [None]}], "one": ["only"], "empty_string": ["", "x"],
        "negative": [-1, 0, 1], "booleans": [True], "many": [f"option {i}" for i in range(200)], "spaces": [" a", "a ", " "]}
    for name, items in sets.items():
        yield f"enum_{name}", {"enum": items}
        yield f"const_{name}", {"const": items[-1]}
        yield f"enum_in_array_{name}", {"type": "array", "items": {"enum": items}, "minItems": 1, "maxItems": 3}
    for kind in ("boolean", "null"):
        yield kind, {"type": kind}
    yield "type_list", {"type": ["boolean", "null"]}
    yield "typed_enum", {"type": "string", "enum": ["low", "mid", "high"]}
    yield "enum_of_a_type", {"type": "integer", "enum": [1, "two", 3]}


def arrays():
    for low, high in [(0, 0), (0, 3), (1, 1), (2, 4), (5, 5)]:
        yield f"array_{low}_{high}", {"type": "array", "items": SMALL, "minItems": low, "maxItems": high}
        yield f"words_{low}_{high}", {"type": "array", "items": WORD, "minItems": low, "maxItems": high}
    for depth in (2, 3, 4):
        schema = SMALL
        for _ in range(depth):
            schema = {"type": "array", "items": schema, "minItems": 1, "maxItems": 2}
        yield f"matrix_{depth}", schema
    yield "tuple", {"type": "array", "prefixItems": [WORD, SMALL, {"type": "boolean"}], "items": False, "minItems": 3}
    yield "tuple_and_more", {"type": "array", "prefixItems": [WORD], "items": SMALL, "minItems": 2, "maxItems": 4}
    yield "tuple_draft7", {"$schema": "http://json-schema.org/draft-07/schema#", "type": "array", "items": [WORD, SMALL], "additionalItems": False, "minItems": 2}
    yield "array_of_objects", {"type": "array", "items": obj(id=SMALL, name=WORD), "minItems": 1, "maxItems": 3}


def objects():
    for depth in range(1, 7):
        yield f"nested_{depth}", nested(depth, SMALL)
        yield f"nested_optional_{depth}", nested(depth, obj(required=["a"], a=WORD, b=SMALL))
    for n in (1, 2, 5, 10, 20):
        yield f"wide_{n}", obj(**{f"field_{i}": SMALL for i in range(n)})
        yield f"wide_optional_{n}", obj(required=[], **{f"field_{i}": SMALL for i in range(n)})
    keys = {"unicode": "größe", "japanese": "名前", "emoji": "😊", "space": "first name", "dot": "a.b",
            "quote": 'say "hi"', "backslash": "a\\b", "empty": "", "dollar": "$ref2", "slash": "a/b", "newline": "a\nb", "keyword": "properties", "type": "type"}
    for name, key in keys.items():
        yield f"key_{name}", obj(**{key: SMALL})
    yield "key_enum", {"type": "object", "properties": {"enum": {"const": 1}, "const": {"enum": ["x"]}}, "required": ["enum", "const"], "additionalProperties": False}
    yield "order", obj(zebra=SMALL, apple=SMALL, mango=SMALL)
    yield "pattern_properties", {"type": "object", "patternProperties": {"^s_[a-z]{1,3}$": WORD, "^i_[a-z]{1,3}$": SMALL}, "additionalProperties": False, "maxProperties": 3}
    yield "map", {"type": "object", "additionalProperties": SMALL, "maxProperties": 3}
    yield "at_least_one", {"type": "object", "properties": {"a": SMALL, "b": SMALL}, "additionalProperties": False, "minProperties": 1}
    yield "at_most_one", {"type": "object", "properties": {"a": SMALL, "b": SMALL}, "additionalProperties": False, "maxProperties": 1}
    yield "no_members", {"type": "object", "additionalProperties": False}
    yield "required_elsewhere", {"type": "object", "required": ["x"], "additionalProperties": SMALL, "maxProperties": 2}


def combinations():
    cat, dog = obj(kind={"const": "cat"}, lives=SMALL), obj(kind={"const": "dog"}, tricks={"type": "array", "items": WORD, "maxItems": 2})
    yield "any_of", {"anyOf": [SMALL, WORD, {"type": "null"}]}
    yield "any_of_objects", {"anyOf": [cat, dog]}
    yield "one_of_discriminated", {"oneOf": [cat, dog], "discriminator": {"propertyName": "kind"}}
    yield "one_of_types", {"oneOf": [{"type": "string", "maxLength": 5}, {"type": "integer", "maximum": 9, "minimum": 0}]}
    yield "one_of_consts", {"oneOf": [{"const": "a", "description": "first"}, {"const": "b"}]}
    yield "all_of", {"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 9}]}
    yield "all_of_objects", {"allOf": [obj(closed=False, a=SMALL), obj(closed=False, b=WORD)], "type": "object", "maxProperties": 2}
    yield "any_of_limits", {"type": "integer", "anyOf": [{"minimum": 0, "maximum": 3}, {"minimum": 10, "maximum": 12}]}
    yield "all_of_ref", {"allOf": [{"$ref": "#/$defs/base"}], "description": "older pydantic", "$defs": {"base": obj(id=SMALL)}}
    yield "any_in_all", {"allOf": [{"anyOf": [{"const": 1}, {"const": 2}]}, {"anyOf": [{"const": 2}, {"const": 3}]}]}
    for n in (2, 4, 8):
        yield f"any_of_{n}_objects", {"anyOf": [obj(**{f"only_{i}": SMALL}) for i in range(n)]}
        yield f"nullable_{n}", obj(**{f"f{i}": {"anyOf": [WORD, {"type": "null"}], "default": None} for i in range(n)})
        yield f"nested_any_{n}", {"anyOf": [{"anyOf": [{"const": f"{i}{j}"} for j in range(n)]} for i in range(n)]}


def references():
    tree = obj(required=["value"], value=SMALL, left={"$ref": "#/$defs/tree"}, right={"$ref": "#/$defs/tree"})
    yield "enum_behind_ref", {"$ref": "#/$defs/e", "$defs": {"e": {"enum": ["u", "v"]}}}
    yield "definitions", {"type": "object", "properties": {"a": {"$ref": "#/definitions/w"}}, "required": ["a"], "additionalProperties": False, "definitions": {"w": WORD}}
    yield "ref_into_items", {"type": "array", "items": {"anyOf": [SMALL]}, "prefixItems": [{"$ref": "#/items/anyOf/0"}], "minItems": 2, "maxItems": 2}
    yield "tree", {"$ref": "#/$defs/tree", "$defs": {"tree": tree}}
    yield "tree_any_of", {"$ref": "#/$defs/t", "$defs": {
        "t": {"anyOf": [SMALL, {"type": "array", "items": {"$ref": "#/$defs/t"}, "minItems": 2, "maxItems": 2}]}}}
    yield "list", {"$ref": "#/$defs/n", "$defs": {"n": obj(head=SMALL, tail={"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]})}}
    yield "root_recursion", obj(required=["name"], name=WORD, children={"type": "array", "items": {"$ref": "#"}, "maxItems": 2})
    yield "mutual", {"$ref": "#/$defs/a", "$defs": {"a": obj(required=[], b={"$ref": "#/$defs/b"}), "b": obj(required=[], a={"$ref": "#/$defs/a"})}}
    yield "child_resources", {"$ref": "#/$defs/r", "$defs": {"r": obj(
        required=["id"], id={"type": "string", "pattern": "^[a-z]{2,6}$"}, childresource={"type": "array", "items": {"$ref": "#/$defs/r"}, "maxItems": 2})}}
    yield "expression", {"$ref": "#/$defs/e", "$defs": {"e": {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 9}, obj(
        op={"enum": ["+", "*"]}, args={"type": "array", "items": {"$ref": "#/$defs/e"}, "minItems": 2, "maxItems": 2})]}}}
    for n in (2, 5, 10):
        chain = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(n)}
        yield f"chain_{n}", {"$ref": "#/$defs/d0", "$defs": {**chain, f"d{n}": SMALL}}
        yield f"shared_{n}", {**obj(**{f"p{i}": {"$ref": "#/$defs/s"} for i in range(n)}), "$defs": {"s": obj(x=SMALL)}}


def documents():
    """What applications ask for."""
    address = obj(street=LINE, city=WORD, zip={"type": "string", "pattern": "^[0-9]{5}$"})
    person = obj(name=LINE, age={"type": "integer", "minimum": 0, "maximum": 120}, email={"type": "string", "pattern": "^[a-z]{1,8}@[a-z]{1,8}\\.(com|org)$"})
    yield "person", person
    yield "person_with_address", obj(person=person, address=address)
    yield "event", obj(title=LINE, date={"type": "string", "format": "date"}, participants={"type": "array", "items": WORD, "minItems": 1, "maxItems": 3})
    yield "review", obj(sentiment={"enum": ["positive", "neutral", "negative"]}, score={"type": "number", "minimum": 0, "maximum": 1}, summary=LINE)
    yield "steps", obj(steps={"type": "array", "items": obj(explanation=LINE, output=WORD), "minItems": 1, "maxItems": 2}, final_answer=WORD)
    line = obj(item=WORD, quantity=SMALL, price={"type": "number", "minimum": 0, "maximum": 99})
    yield "invoice", obj(number={"type": "string", "pattern": "^INV-[0-9]{4}$"}, lines={"type": "array", "items": line, "minItems": 1, "maxItems": 2})
    yield "call", obj(name={"const": "get_weather"}, arguments=obj(required=["city"], city=WORD, unit={"enum": ["c", "f"]}))
    yield "calls", {"type": "array", "minItems": 1, "maxItems": 2, "items": {"anyOf": [obj(name={"const": n}, arguments=obj(x=SMALL)) for n in ("add", "subtract")]}}
    yield "pydantic", {"title": "Model", "type": "object", "properties": {
        "id": {"title": "Id", "type": "integer", "minimum": 0, "maximum": 9},
        "tags": {"title": "Tags", "type": "array", "items": WORD, "default": [], "maxItems": 2},
        "kind": {"$ref": "#/$defs/Kind", "description": "what it is"}}, "required": ["id", "kind"], "additionalProperties": False,
        "$defs": {"Kind": {"enum": ["x", "y"], "title": "Kind", "type": "string"}}}
    yield "openapi", obj(id=SMALL, status={"type": "string", "enum": ["available", "sold"], "x-order": 1, "example": "sold"})
    yield "config", obj(required=["port"], port={"type": "integer", "minimum": 1, "maximum": 65535}, host={"type": "string", "format": "ipv4"}, debug={"type": "boolean", "default": False})
    yield "geo", obj(type={"const": "Point"}, coordinates={"type": "array", "items": {"type": "number", "minimum": -180, "maximum": 180}, "minItems": 2, "maxItems": 2})
    yield "quiz", obj(question=LINE, options={"type": "array", "items": WORD, "minItems": 2, "maxItems": 4}, answer={"type": "integer", "minimum": 0, "maximum": 3})
    yield "table", {"type": "array", "items": {"type": "array", "prefixItems": [WORD, SMALL], "items": False, "minItems": 2}, "minItems": 1, "maxItems": 3}


def in_objects(cases):
    """Each of them as the value of a property, beside another."""
    for name, schema in list(cases):
        if "$defs" not in schema and "$schema" not in schema:
            yield f"in_object_{name}", obj(before=SMALL, value=schema)


PLAIN = [*numbers(), *strings(), *values(), *arrays(), *objects(), *combinations(), *references(), *documents()]
ACCEPTED = dict([*PLAIN, *in_objects([*strings(), *combinations()])])

REFUSED = {
    "not": {"not": {"type": "null"}}, "if": {"if": {"type": "string"}, "then": {"minLength": 2}}, "unique": {"type": "array", "uniqueItems": True}, "contains": {"type": "array", "contains": SMALL},
    "dependent_required": {"dependentRequired": {"a": ["b"]}}, "dependencies": {"dependencies": {"a": ["b"]}}, "dependent_schemas": {"dependentSchemas": {"a": {}}},
    "property_names": {"propertyNames": {"pattern": "^a"}}, "unevaluated_properties": {"unevaluatedProperties": False}, "unevaluated_items": {"unevaluatedItems": False},
    "dynamic_ref": {"$dynamicRef": "#a"}, "remote_ref": {"$ref": "https://example.com/schema.json"}, "missing_ref": {"$ref": "#/$defs/none"}, "ref_to_itself": {"$ref": "#"},
    "circle": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, "overlapping_one_of": {"oneOf": [{"type": "integer"}, {"type": "number"}]},
    "unknown_format": {"type": "string", "format": "telepathic"}, "unknown_type": {"type": "strin"}, "type_number": {"type": 5}, "properties_list": {"properties": []},
    "required_string": {"type": "object", "required": "a"}, "look_ahead": {"type": "string", "pattern": "(?=a)b"}, "look_behind": {"type": "string", "pattern": "(?<=x)*"},
    "back_reference": {"type": "string", "pattern": "(a)\\1"}, "open_group": {"type": "string", "pattern": "(a"}, "nothing_to_repeat": {"type": "string", "pattern": "*"},
    "deep_pattern": {"type": "string", "pattern": "(" * 10000}, "impossible_length": {"type": "string", "pattern": "^a$", "minLength": 5}, "impossible_range": {"type": "integer", "minimum": 5, "maximum": 4},
    "impossible_property": obj(a=False), "impossible_all_of": {"allOf": [{"type": "string"}, {"type": "integer"}]}, "false": False, "number": 5,
    "large_const": {"const": 2**53 + 1}, "min_properties": {"type": "object", "minProperties": 3}, "lenient": {"x-guidance": {"lenient": True}, "not": {}},
    "long": {"description": "x" * 70000}, "wide": obj(**{f"p{i}": SMALL for i in range(1000)}), "patterns_at_once": {"allOf": [{"type": "string", "pattern": f"c.*{i}"} for i in range(40)]},
    "large_multiple": {"type": "integer", "multipleOf": 999983}, "many_pattern_properties": {"patternProperties": {f"^x{i}": SMALL for i in range(40)}}}
