from moorline.records.table_facts import ColumnFacts
from moorline.records.typescript import interface_name, typescript


def column(name: str, base_type: str, *, is_not_null: bool = False) -> ColumnFacts:
    return ColumnFacts(name, base_type, base_type, is_not_null, "", True, None, False)


def test_columns_have_the_types_of_their_json() -> None:
    columns = [
        column("id", "bigint", is_not_null=True),
        column("price", "numeric"),
        column("tags", "text[]"),
        column("is_open", "boolean"),
        column('a"b*/', "timestamp with time zone"),
        column("moor_seq", "bigint", is_not_null=True),
    ]
    assert typescript("my-table", columns).splitlines()[2:-1] == [
        "  id: number | string;",
        "  price: string | null;",
        "  tags: unknown[] | null;",
        "  is_open: boolean | null;",
        '  "a\\"b*/": string | null;',
    ]


def test_names_of_interfaces_are_names() -> None:
    names = ["experiments", "my_table", "2024", "a.b-c"]
    assert [interface_name(name) for name in names] == [
        "Experiments",
        "MyTable",
        "Table2024",
        "ABC",
    ]
