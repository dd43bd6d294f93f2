#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/data/schemas.json: schemas as clients send them. By hand, with a Python that has
pydantic (2) and, for --mcp, MCP servers:

  make_schemas.py --exe build/grammar_walk [--mcp VENV] > tests/data/schemas.json

pydantic's are generated here from models of many kinds; those of zod (4, z.toJSONSchema) and
schemars (1.0) are written by hand in the forms that these libraries document; --mcp asks the
servers in VENV/bin for the tools that they list (pip install mcp-server-fetch mcp-server-git
mcp-server-time mcp-server-sqlite). Each entry says what the grammar makes of it: strict: "" where
it is held exactly, else the reason; relaxed: what is left out where it need not be exact. Without
--mcp the entries of servers are kept as they are in the file."""
import argparse
import dataclasses
import datetime
import decimal
import enum
import ipaddress
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import typing
import uuid
from typing import Annotated, Any, Generic, Literal, NamedTuple, Optional, TypeVar, Union

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(HERE, "..", "data", "schemas.json")


def pydantic_schemas():
    import pydantic as p
    from pydantic import BaseModel, ConfigDict, Field, RootModel, TypeAdapter
    from typing_extensions import TypedDict

    class Color(str, enum.Enum):
        red = "red"
        blue = "blue"

    class Level(int, enum.Enum):
        low = 1
        high = 3

    class Address(BaseModel):
        street: str = Field(min_length=1, max_length=100)
        zip: str = Field(pattern=r"^\d{5}(-\d{4})?$")
        country: Literal["US", "NL"] = "US"

    class Person(BaseModel):
        """A person."""
        name: str
        age: int = Field(ge=0, le=150)
        email: Optional[str] = None
        address: Optional[Address] = None
        tags: list[str] = Field(default_factory=list, max_length=10)

    class Cat(BaseModel):
        kind: Literal["cat"]
        lives: int = Field(ge=1, le=9)

    class Dog(BaseModel):
        kind: Literal["dog"]
        breed: str

    class Pet(BaseModel):
        pet: Annotated[Union[Cat, Dog], Field(discriminator="kind")]

    class Tree(BaseModel):
        value: int
        children: list["Tree"] = []

    class Linked(BaseModel):
        v: str
        next: Optional["Linked"] = None

    class Forbid(BaseModel):
        model_config = ConfigDict(extra="forbid")
        a: int
        b: str = "x"

    class Allow(BaseModel):
        model_config = ConfigDict(extra="allow")
        a: int

    class Base(BaseModel):
        id: uuid.UUID

    class Derived(Base):
        at: datetime.datetime
        day: datetime.date
        t: datetime.time
        d: datetime.timedelta

    T = TypeVar("T")

    class Page(BaseModel, Generic[T]):
        items: list[T]
        total: int = Field(ge=0)

    class Movie(TypedDict):
        title: str
        year: int

    class Partial(TypedDict, total=False):
        a: int
        b: str

    class Point(NamedTuple):
        x: float
        y: float

    @dataclasses.dataclass
    class Data:
        a: int
        b: Optional[list[float]] = None

    class Expr(BaseModel):
        op: Literal["add", "mul"]
        left: Union["Expr", float]
        right: Union["Expr", float]

    class Step(BaseModel):
        explanation: str
        output: str

    class Reasoning(BaseModel):
        steps: list[Step] = Field(min_length=1, max_length=20)
        final_answer: str

    class Prices(BaseModel):
        price: decimal.Decimal
        tax: decimal.Decimal = Field(max_digits=6, decimal_places=2)
        rate: float = Field(gt=0, lt=1)
        step: int = Field(multiple_of=5)

    class Nets(BaseModel):
        u: p.AnyUrl
        h: p.HttpUrl
        e: Optional[p.AnyHttpUrl] = None
        v4: ipaddress.IPv4Address
        v6: ipaddress.IPv6Address
        net: ipaddress.IPv4Network

    class Secrets(BaseModel):
        s: p.SecretStr
        b: p.SecretBytes
        path: pathlib.Path
        raw: bytes
        b64: p.Base64Bytes
        json_: p.Json

    models = {
        "person": Person, "union by discriminator": Pet, "recursive": Tree,
        "linked": Linked, "extra forbid": Forbid, "extra allow": Allow, "derived": Derived,
        "generic": Page[Person], "generic of int": Page[int], "expression": Expr,
        "reasoning": Reasoning, "decimals": Prices, "nets": Nets, "secrets": Secrets}
    types = {
        "Decimal": decimal.Decimal, "set": set[str], "frozenset of int": frozenset[int],
        "set of enum": set[Color], "set of literal": set[Literal["a", "b", "c"]],
        "conset": Annotated[set[Color], Field(min_length=1, max_length=2)],
        "enum": Color, "int enum": Level, "literal mixed": Literal["a", 1, True, None],
        "AnyUrl": p.AnyUrl, "HttpUrl": p.HttpUrl, "FileUrl": p.FileUrl,
        "UUID": uuid.UUID, "UUID4": p.UUID4, "datetime": datetime.datetime,
        "AwareDatetime": p.AwareDatetime, "PastDate": p.PastDate,
        "date": datetime.date, "time": datetime.time, "timedelta": datetime.timedelta,
        "tuple": tuple[int, str, float], "tuple of any length": tuple[int, ...],
        "named tuple": Point, "dataclass": Data, "typed dict": Movie, "typed dict partial": Partial,
        "dict": dict[str, int], "dict of enum": dict[Color, int], "dict of int": dict[int, str],
        "dict of pattern": dict[Annotated[str, Field(pattern="^[a-z]+$")], int],
        "dict min": Annotated[dict[str, int], Field(min_length=1)],
        "dict max": Annotated[dict[str, Any], Field(max_length=5)],
        "constr": Annotated[str, Field(min_length=3, max_length=10, pattern="^[A-Z]")],
        "constr strip": p.constr(strip_whitespace=True, to_lower=True, min_length=1),
        "conint": p.conint(gt=0, lt=100), "confloat": p.confloat(ge=-1.5, le=1.5),
        "conlist": p.conlist(int, min_length=2, max_length=4),
        "PositiveInt": p.PositiveInt, "NonNegativeFloat": p.NonNegativeFloat,
        "multiple of": Annotated[float, Field(multiple_of=0.5)],
        "multiple of 0.01": Annotated[float, Field(multiple_of=0.01, ge=0, le=5)],
        "optional": Optional[int], "union": Union[int, str, list[int]], "any": Any,
        "none": type(None), "bytes": bytes, "Path": pathlib.Path,
        "IPvAnyAddress": p.IPvAnyAddress, "ByteSize": p.ByteSize, "pattern": typing.Pattern,
        "deque": Annotated[list[str], Field(max_length=1000)], "Json": p.Json[list[int]],
        "list of union": list[Union[Person, Address]], "int or float": Union[int, float],
        "nested list": list[list[list[int]]], "strict bool": p.StrictBool,
        "email like": Annotated[str, Field(json_schema_extra={"format": "email"}, max_length=254)],
        "examples": Annotated[int,
                              Field(examples=[1, 2], title="N", description="d", deprecated=True)]}
    for name, m in models.items():
        yield f"pydantic: {name}", m.model_json_schema()
    for name, t in types.items():
        yield f"pydantic: {name}", TypeAdapter(t).json_schema()
    class Rooted(RootModel[list[Person]]):
        pass
    yield "pydantic: root model", Rooted.model_json_schema()
    yield "pydantic: serialization", Prices.model_json_schema(mode="serialization")


Z = {"$schema": "https://json-schema.org/draft/2020-12/schema"}


def obj(props, required=None, **kw):
    return {"type": "object", "properties": props, "required": list(props)
            if required is None else required, "additionalProperties": False, **kw}


SAFE = {"minimum": -9007199254740991, "maximum": 9007199254740991}
ZOD = {
    "object": {**Z, **obj({"name": {"type": "string"}, "age": {"type": "integer", **SAFE}})},
    "record": {**Z, "type": "object", "propertyNames": {"type": "string"},
               "additionalProperties": {"type": "string"}},
    "record of enum": {**Z, "type": "object", "propertyNames": {"type": "string", "enum": [
        "a", "b"]}, "additionalProperties": {"type": "number"}, "required": ["a", "b"]},
    "record of regex": {**Z, "type": "object", "propertyNames":
                            {"type": "string", "pattern": "^x-"}, "additionalProperties": {}},
    "loose object": {**Z, "type": "object", "properties": {"a": {"type": "string"}},
                     "required": ["a"], "additionalProperties": {}},
    "email": {**Z, "type": "string", "format": "email",
              "pattern":
                  "^(?!\\.)(?!.*\\.\\.)([A-Za-z0-9_'+\\-\\.]*)[A-Za-z0-9_+-]@"
                  "([A-Za-z0-9][A-Za-z0-9\\-]*\\.)+[A-Za-z]{2,}$"},
    "uuid": {**Z, "type": "string", "format": "uuid",
             "pattern":
                 "^([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[1-8][0-9a-fA-F]{3}-"
                 "[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}|00000000-0000-0000-0000-000000000000|"
                 "ffffffff-ffff-ffff-ffff-ffffffffffff)$"},
    "url": {**Z, "type": "string", "format": "uri", "maxLength": 2000},
    "iso datetime": {**Z, "type": "string", "format": "date-time",
                     "pattern":
                      "^(?:(?:\\d\\d[2468][048]|\\d\\d[13579][26]|\\d\\d0[48]|[02468][048]00|"
                      "[13579][26]00)-02-29|\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|"
                      "(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|(?:02)-(?:0[1-9]|1\\d|2[0-8])))"
                      "T(?:(?:[01]\\d|2[0-3]):[0-5]\\d(?::[0-5]\\d(?:\\.\\d+)?)?(?:Z))$"},
    "iso date": {**Z, "type": "string", "format": "date"},
    "cuid2": {**Z, "type": "string", "format": "cuid2", "pattern": "^[0-9a-z]+$"},
    "ipv4": {**Z, "type": "string", "format": "ipv4",
             "pattern":
                 "^(?:(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9][0-9]|[0-9])\\.){3}"
                 "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9][0-9]|[0-9])$"},
    "base64": {**Z, "type": "string", "format": "base64", "contentEncoding": "base64", "pattern":
                   "^$|^(?:[0-9a-zA-Z+/]{4})*(?:(?:[0-9a-zA-Z+/]{2}==)|(?:[0-9a-zA-Z+/]{3}=))?$"},
    "positive": {**Z, "type": "number", "exclusiveMinimum": 0},
    "multiple": {**Z, "type": "integer", "multipleOf": 4, **SAFE},
    "tuple": {**Z, "type": "array", "prefixItems": [{"type": "string"}, {"type": "number"}]},
    "tuple with rest": {**Z, "type": "array", "prefixItems": [{"type": "string"}],
                        "items": {"type": "number"}},
    "union": {**Z, "anyOf": [{"type": "string"}, {"type": "number"}, {"type": "null"}]},
    "discriminated":
        {**Z, "oneOf": [obj({"t": {"type": "string", "const": "a"}, "x": {"type": "number"}}),
                        obj({"t": {"type": "string", "const": "b"}, "y": {"type": "string"}})]},
    "intersection": {**Z, "allOf": [{"type": "object", "properties": {"a": {"type": "string"}},
                                     "required": ["a"]}, {"type": "object", "properties": {
                                         "b": {"type": "number"}}, "required": ["b"]}]},
    "never": {**Z, **obj({"a": {"not": {}}, "b": {"type": "string"}}, ["b"])},
    "literal": {**Z, "type": "string", "const": "tuna"},
    "literals": {**Z, "enum": ["red", 1, None]},
    "lazy": {**Z,
             **obj({"name": {"type": "string"}, "sub": {"type": "array", "items": {"$ref": "#"}}})},
    "lazy defs": {**Z, "$ref": "#/$defs/__schema0", "$defs": {
        "__schema0": obj({"v": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/__schema0"}]}})}},
    "starts with": {**Z, "type": "string", "pattern": "^ab.*", "minLength": 4, "maxLength": 40},
    "two checks": {**Z, "type": "string", "allOf": [{"pattern": "^ab.*"}, {"pattern": ".*yz$"}]},
    "default": {**Z, **obj({"n": {"default": 5, "type": "integer", **SAFE}}, ["n"])},
    "draft 7": {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
                "properties": {"p": {"type": "array",
                                     "items": [{"type": "string"}, {"type": "number"}],
                                     "minItems": 2, "maxItems": 2}},
                "required": ["p"], "additionalProperties": False},
    "zod 3 union of types": {"$schema": "http://json-schema.org/draft-07/schema#",
                             "type": ["string", "number", "null"]},
    "openapi 3.0": {"type": "object", "properties": {"a": {"type": "string", "nullable": True},
                                                     "b": {"type": "number", "minimum": 0,
                                                           "exclusiveMinimum": True}},
                    "required": ["a", "b"], "additionalProperties": False},
}
R = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
SCHEMARS = {
    "ints": {**R, "type": "object",
             "properties": {"a": {"type": "integer", "format": "uint32", "minimum": 0},
                            "b": {"type": "integer", "format": "int64"},
                            "c": {"type": "integer", "format": "uint64", "minimum": 0},
                            "d": {"type": "integer", "format": "uint8", "minimum": 0,
                                  "maximum": 255}, "e": {"type": "number", "format": "double"},
                            "f": {"type": "integer", "format": "uint", "minimum": 0}},
             "required": ["a", "b", "c", "d", "e", "f"]},
    "option": {**R, "type": "object", "properties": {"o": {"type": ["string", "null"]}, "p": {
        "anyOf": [{"$ref": "#/$defs/P"}, {"type": "null"}]}},
               "$defs": {"P": {"type": "object", "properties": {
                   "x": {"type": "number", "format": "float"}}, "required": ["x"]}}},
    "enum of units": {**R, "type": "string", "enum": ["Up", "Down"]},
    "enum with docs": {**R, "oneOf": [{"description": "up", "type": "string", "const": "Up"},
                                      {"description": "down", "type": "string", "const": "Down"}]},
    "externally tagged": {**R, "oneOf": [{"type": "string", "enum": ["Unit"]},
                                         {"type": "object",
                                          "properties": {"New": {"type": "string"}},
                                          "required": ["New"], "additionalProperties": False},
                                         {"type": "object",
                                          "properties":
                                              {"Struct": {"type": "object",
                                                          "properties": {"a": {"type": "boolean"}},
                                                          "required": ["a"]}},
                                          "required": ["Struct"], "additionalProperties": False}]},
    "internally tagged":
        {**R, "oneOf": [{"type": "object",
                         "properties": {"t": {"type": "string", "const": "A"},
                                        "x": {"type": "integer", "format": "int32"}},
                         "required": ["t", "x"]}, {"type": "object", "properties": {
                             "t": {"type": "string", "const": "B"}}, "required": ["t"]}]},
    "adjacently tagged":
        {**R, "oneOf": [{"type": "object",
                         "properties": {"t": {"type": "string", "const": "A"},
                                        "c": {"type": "string"}}, "required": ["t", "c"]},
                        {"type": "object",
                         "properties": {"t": {"type": "string", "const": "B"},
                                        "c": {"type": "array", "items": {"type": "integer"}}},
                         "required": ["t", "c"]}]},
    "untagged": {**R, "anyOf": [{"type": "string"}, {"type": "integer", "format": "int32"},
                                {"type": "array", "items": {"type": "string"}}]},
    "flatten": {**R, "type": "object", "properties": {"a": {"type": "string"}},
                "required": ["a"], "additionalProperties": {"type": "integer", "format": "int32"}},
    "flatten with enum": {**R, "type": "object", "properties": {"id": {"type": "string"}},
                          "required": ["id"],
                          "oneOf": [{"type": "object", "properties": {"x": {"type": "number"}},
                                     "required": ["x"]}, {"type": "object", "properties": {"y": {
                                         "type": "string", "const": "y"}}, "required": ["y"]}]},
    "deny unknown": {**R, "type": "object", "properties": {"a": {"type": "string"}},
                     "additionalProperties": False},
    "hash set": {**R, "type": "array", "items": {"type": "string"}, "uniqueItems": True},
    "set of enum": {**R, "type": "array", "items": {"type": "string", "enum": ["r", "w", "x"]},
                    "uniqueItems": True},
    "hash map": {**R, "type": "object",
                 "additionalProperties": {"type": "integer", "format": "uint32", "minimum": 0}},
    "map of ints": {**R, "type": "object", "patternProperties": {"^\\d+$": {"type": "string"}},
                    "additionalProperties": False},
    "tuple": {**R, "type": "array", "prefixItems": [
        {"type": "integer", "format": "int32"}, {"type": "string"}], "minItems": 2, "maxItems": 2},
    "draft 7 tuple": {"$schema": "http://json-schema.org/draft-07/schema#", "type": "array",
                      "items": [{"type": "integer", "format": "int32"}, {"type": "string"}],
                      "minItems": 2, "maxItems": 2},
    "draft 7 all_of": {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
                       "properties": {"c": {"description": "a color", "default": "Red",
                                            "allOf": [{"$ref": "#/definitions/C"}]}},
                       "definitions": {"C": {"type": "string", "enum": ["Red", "Blue"]}}},
    "duration": {**R, "type": "object", "properties": {"d": {"$ref": "#/$defs/Duration"}},
                 "required": ["d"],
                 "$defs": {"Duration": {"type": "object",
                                        "properties":
                                            {"secs": {"type": "integer", "format": "uint64",
                                                      "minimum": 0},
                                             "nanos": {"type": "integer", "format": "uint32",
                                                       "minimum": 0}},
                                        "required": ["secs", "nanos"]}}},
    "char": {**R, "type": "string", "minLength": 1, "maxLength": 1},
    "recursive box": {**R, "type": "object", "properties": {"left": {"anyOf": [{"$ref": "#"}, {
        "type": "null"}]}, "v": {"type": "integer", "format": "int32"}}, "required": ["v"]},
    "range": {**R, "type": "object",
              "properties": {"start": {"type": "string", "format": "partial-date-time"},
                             "len": {"type": "string", "minLength": 1, "maxLength": 10,
                                     "pattern": "^[a-z]+$"}}, "required": ["start", "len"]},
}
FORMS = {
    "one of two ways": {"type": "object", "properties": {"id": {"type": "string"}, "name": {
        "type": "string"}}, "anyOf": [{"required": ["id"]}, {"required": ["name"]}]},
    "not both": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                 "not": {"required": ["a", "b"]}},
    "integer or number": {"oneOf": [{"type": "integer"}, {"type": "number"}]},
    "if then else": {"type": "object", "properties": {"country": {"enum": ["US", "NL"]}, "zip": {
        "type": "string"}}, "required": ["country", "zip"],
                     "if": {"properties": {"country": {"const": "US"}}},
                     "then": {"properties": {"zip": {"pattern": "^[0-9]{5}$"}}},
                     "else": {"properties": {"zip": {"pattern": "^[0-9]{4} [A-Z]{2}$"}}}},
    "dependent": {"type": "object", "properties": {"card": {"type": "string"}, "billing": {
        "type": "string"}}, "dependentRequired": {"card": ["billing"]}},
    "dependencies": {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
                     "properties": {"a": {"type": "boolean"}, "b": {"type": "integer"}},
                     "dependencies": {"a": ["b"]}},
    "password": {"type": "string", "pattern": "^(?=.*[a-z])(?=.*[A-Z])(?=.*\\d).{8,64}$"},
    "host name": {"type": "string", "pattern": "^(?!-)[a-z0-9-]{1,63}(?<!-)$"},
    "required but not listed": {"type": "object", "properties": {"a": {"type": "string"}},
                                "required": ["a", "b"]},
    "large bounds": {"type": "array", "maxItems": 100000,
                     "items": {"type": "string", "maxLength": 1000}},
    "very large": {"type": "object",
                   "properties": {"text": {"type": "string", "maxLength": 2147483647}, "ids": {
                       "type": "array", "items": {"type": "integer"}, "maxItems": 4294967295}}},
    "unicode property": {"type": "string", "pattern": "^\\p{L}+$"},
    "foreign words": {"type": "object", "properties": {"a": {"type": "string", "enumNames": [
        "x"], "ui:widget": "text", "markdownDescription": "m"}}, "propertyOrder": ["a"]},
    "contains": {"type": "array", "items": {"type": ["integer", "string"]},
                 "contains": {"type": "integer"}, "minContains": 2, "maxContains": 3},
    "unevaluated": {"type": "object", "allOf": [{"properties": {"a": {"type": "string"}}}],
                    "properties": {"b": {"type": "integer"}}, "unevaluatedProperties": False},
    "anchor": {"$id": "https://example.com/root.json", "type": "object",
               "properties": {"a": {"$ref": "#pos"}, "b": {"$ref": "item.json"}},
               "$defs": {"p": {"$anchor": "pos", "type": "integer", "minimum": 1},
                         "i": {"$id": "item.json", "type": "string", "maxLength": 3}}},
    "a reference elsewhere": {"type": "object",
                              "properties": {"a": {"$ref": "https://example.com/other.json"}}},
    "a dynamic reference": {"type": "object", "properties": {"a": {"$dynamicRef": "#node"}}},
    "kubernetes": {"type": "object",
                   "properties": {"cpu": {"oneOf": [{"type": "string"}, {"type": "number"}]},
                                  "port": {"anyOf": [{"type": "integer"}, {"type": "string"}],
                                           "x-kubernetes-int-or-string": True}},
                   "required": ["cpu"]},
    "exclusive objects": {"oneOf": [{"type": "object", "properties": {"a": {"type": "string"}},
                                     "additionalProperties": False},
                                    {"type": "object", "properties": {"b": {"type": "string"}},
                                     "additionalProperties": False}]},
    "exclusive required": {"type": "object", "properties": {"a": {"type": "string"}, "b": {
        "type": "string"}}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
}
SERVERS = [("fetch", "mcp-server-fetch", []), ("git", "mcp-server-git", []),
           ("time", "mcp-server-time", ["--local-timezone", "UTC"]),
           ("sqlite", "mcp-server-sqlite",
            ["--db-path", os.path.join(tempfile.gettempdir(), "make-schemas.db")])]

ASK = """
import asyncio, json, sys
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
async def ask():
    server = StdioServerParameters(command=sys.argv[1], args=sys.argv[2:])
    async with stdio_client(server) as (r, w):
        async with ClientSession(r, w) as s:
            await s.initialize()
            tools = (await s.list_tools()).tools
            print(json.dumps([[t.name, getattr(t, "inputSchema", None) or t.input_schema]
                              for t in tools]))
asyncio.run(ask())
"""


def mcp_schemas(venv):
    for name, command, args in SERVERS:
        r = subprocess.run([f"{venv}/bin/python", "-c", ASK, f"{venv}/bin/{command}", *args],
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, timeout=120)
        if r.returncode:
            print(f"{command}: {r.stderr.decode()[-300:]}", file=sys.stderr)
            continue
        for tool, schema in json.loads(r.stdout):
            yield f"mcp {name}: {tool}", schema


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--exe", default="build/grammar_walk")
    p.add_argument("--mcp")
    a = p.parse_args()
    rows = list(pydantic_schemas())
    for kind, group in (("zod", ZOD), ("schemars", SCHEMARS), ("form", FORMS)):
        rows += [(f"{kind}: {k}", v) for k, v in group.items()]
    if a.mcp:
        rows += list(mcp_schemas(a.mcp))
    elif os.path.exists(DATA):
        with open(DATA, encoding="utf-8") as f:
            rows += [(r["name"], r["schema"]) for r in json.load(f) if r["name"].startswith("mcp ")]
    lines = [json.dumps({"kind": kind, "text": json.dumps(s), "inputs": []}) for _,
             s in rows for kind in ("schema", "loose")]
    out = [json.loads(x) for x in subprocess.run([a.exe, "match"], input="\n".join(
        lines).encode() + b"\n", stdout=subprocess.PIPE, check=True).stdout.splitlines()]
    made = [{"name": n, "schema": s, "strict": o.get("error", ""), "relaxed": u.get(
        "relaxed", u.get("error", ""))} for (n, s), o, u in zip(rows, out[::2], out[1::2])]
    print("[\n" + ",\n".join(json.dumps(m, ensure_ascii=False) for m in made) + "\n]")


if __name__ == "__main__":
    main()
