"""The schemas of tools, from the annotations of functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from docstring_parser import parse
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode

from skerry.packs._result import Result

Function = Callable[..., Any]


class Untitled(GenerateJsonSchema):
    """Schemas without the titles that Pydantic makes of names: a model reads each of them, and they say nothing new."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def schema_of(adapter: TypeAdapter[Any], mode: JsonSchemaMode) -> dict[str, Any]:
    schema = adapter.json_schema(schema_generator=Untitled, mode=mode)
    for part in (schema, *schema.get("$defs", {}).values()):
        part.pop("title", None)
        if part.get("type") == "object":
            part.pop("description", None)  # the docstring of a class is for its readers; a tool has a description of its own
    return schema


class Input:
    """The arguments of a function: their schema, and the way from JSON to them."""

    def __init__(self, function: Function) -> None:
        doc = parse(inspect.getdoc(function) or "")
        self.description = "\n\n".join(t for t in (doc.short_description, doc.long_description) if t)
        told = {p.arg_name: p.description for p in doc.params if p.description}
        hints = get_type_hints(function, include_extras=True)
        parameters = list(inspect.signature(function).parameters.values())
        self.whole = len(parameters) == 1 and is_model(hints.get(parameters[0].name))
        self.model: type[BaseModel] = hints[parameters[0].name] if self.whole else arguments_model(parameters, hints, told)
        self.names = [p.name for p in parameters]
        adapter = TypeAdapter[Any](self.model)
        self.schema = {"type": "object"} | schema_of(adapter, "validation")

    def read(self, raw: bytes) -> dict[str, Any]:
        """The keyword arguments that raw has. An error is ValueError."""
        value = self.model.model_validate_json(raw)
        return (
            {self.names[0]: value}
            if self.whole
            else {n: getattr(value, f) for n, f in zip(self.names, self.model.model_fields, strict=True)}
        )


def is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def arguments_model(parameters: list[inspect.Parameter], hints: dict[str, Any], told: dict[str, str]) -> type[BaseModel]:
    """A model with a field for each parameter. Fields have names of their own: a parameter may be called as a method of models is."""
    fields: dict[str, Any] = {}
    for number, p in enumerate(parameters):
        if p.kind not in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY):
            raise TypeError(f"the parameter {p.name}: a tool has named parameters only, no *args, **kwargs or / before them")
        if p.name not in hints:
            raise TypeError(f"the parameter {p.name} has no annotation, and the schema comes from annotations")
        kind, *more = annotated(hints[p.name])
        texts = [m for m in more if isinstance(m, str)]  # Annotated[str, "whom to look for"] describes a parameter
        own = Field(alias=p.name, description=next(iter(texts), told.get(p.name)))
        kind = Annotated[(kind, own, *(m for m in more if not isinstance(m, str)))]  # what a Field of the author says counts more
        fields[f"argument_{number}"] = (kind, ... if p.default is p.empty else p.default)
    return create_model("Arguments", __config__=ConfigDict(extra="forbid"), **fields)


def annotated(kind: Any) -> tuple[Any, ...]:
    """A type, and what its Annotated adds."""
    return get_args(kind) if get_origin(kind) is Annotated else (kind,)


class Output:
    """The result of a function: its schema, when the annotation promises an object."""

    def __init__(self, function: Function) -> None:
        kind = get_type_hints(function, include_extras=True).get("return", Any)
        self.adapter: TypeAdapter[Any] | None = None
        self.schema: dict[str, Any] | None = None
        if kind in (Any, str, type(None), Result):
            return
        self.adapter = TypeAdapter(kind)
        schema = schema_of(self.adapter, "serialization")
        place = schema
        if "$ref" in schema:  # of a type that contains itself
            place = schema["$defs"][schema["$ref"].rpartition("/")[2]]
        if place.get("type") == "object":
            self.schema = {"type": "object"} | schema
