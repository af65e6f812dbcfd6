"""Small templates, each for one rule of the language. `VALUES` are the keyword arguments that all of them see."""

VALUES = {
    "s": "Hello, World", "u": "héé 中文 🙂 ß", "e": "", "sp": "  \t x y \n ", "n": 7, "z": 0, "neg": -3, "f": 2.5, "big": 1e16,
    "small": 1.5e-7, "t": True, "nul": None, "l": [3, 1, 2], "ls": ["b", "A", "c"], "el": [], "d": {"b": 1, "a": [1, {"x": None}]},
    "ed": {}, "q": "it's \"q\" \\ \n\t\u0001\u00a0é", "lines": "a\nb\r\nc\n\nd", "nest": {"items": [1, 2], "k": {"v": "w"}},
    "people": [{"name": "Ann", "age": 30}, {"name": "bob", "age": 25}, {"name": "Cy", "age": 30}],
}

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi <|im_end|> {{ x }} 你好"},
    {"role": "assistant", "content": "Yes.\n", "tool_calls": [
        {"type": "function", "function": {"name": "f", "arguments": {"x": 1.0, "y": "ü\n", "z": [True, None]}}}]},
    {"role": "tool", "content": "42", "name": "f"},
]

CASES = [
    # White space control.
    "a {% if t %} b {% endif %} c", "a\n{% if t %}\nb\n{% endif %}\nc", "  {% if t %}\n  x\n  {% endif %}\n  y",
    "a {%- if t -%} b {%- endif -%} c", "a\n\n{%- if t %}\n\nb{% endif -%}\n\n c", "x {{- n -}} y", "x {{ n }}\n{{ n }}\n",
    "x\n  {{ n }}\n", "{# c #}\nx\n", "a {#- c -#} b", "a {#+ c +#}\nb", "  {# c #}\n  {# d #} x", "  {%+ if t %}x{% endif %}",
    "{% if t +%}\nx{% endif %}", "\n\n{% if t %}x{% endif %}\n\n", "x\r\ny\rz\n", "x\n\n", "{% raw %} {{ a }} {% b %} {% endraw %}x",
    "a {%- raw -%}  {{ x }}  {%- endraw -%}  b", "{% raw %}\nx\n{% endraw %}\ny", "  {% raw %}  {% endraw %}\n", "{{ '}}' }} {{ \"%}\" }}",
    "{{ {'a': {'b': 1}} }}", "{{ {'a': {'b': 1}}}}", "{{-1}}", "{{- -1 }}", "{ {{ n }} } {% if t %}{%endif%}{", "{", "{{ n }}{", "\u00a0{%- if t %} x{% endif %}",
    # Literals, escapes, numbers.
    r"{{ 'a\n\t\\\'\"\x41\u00e9\U0001F642\101\q' }}", "{{ \"a'b\" 'c' \"d\" }}", "{{ 'line\\\nnext' }}", "{{ 1_000 + 0x1F + 0o17 + 0b101 }}", "{{ 1.0 }} {{ 1e3 }} {{ 1.5e-7 }} {{ 123456789012345680.0 }} {{ 1e15 }} {{ 1e16 }} {{ 0.0001 }} {{ 0.00001 }} {{ -0.0 }}",
    "{{ 10.0 / 4 }} {{ 7 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 2 ** 0.5 }}",
    "{{ 2 * 3 + 4 - 5 }} {{ 2 + 3 * 4 ** 2 }} {{ -2 ** 2 }} {{ (1, 2) }} {{ (1,) }} {{ () }} {{ 1, 2 }} {{ [1, 'a', none, true, 1.5] }}",
    "{{ none }} {{ None }} {{ true }} {{ False }} {{ [] }} {{ {} }}", "{{ true + 1 }} {{ t * 3 }} {{ -t }} {{ +t }}", "{{ 'ab' * 3 }} {{ 2 * 'ab' }} {{ [1] * 2 }} {{ 'a' * 0 }} {{ 'a' * -1 }}",
    "{{ 'a' + 'b' }} {{ [1] + [2] }} {{ (1,) + (2,) }} {{ 'a' ~ 1 ~ none ~ missing ~ 1.5 }}", "{{ 1 ~ 2 + 3 }}", "{{ n ~ s | upper }}", "{{ -n | abs }} {{ neg | abs }} {{ -2.5 | abs }}", "{{ 1 if t }} {{ 1 if z }} {{ 1 if z else 2 if e else 3 }}",
    # Comparisons, logic.
    "{{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ 1 == 1.0 == true }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ 1 != 2 }} {{ (1, 2) == [1, 2] }} {{ {'a': 1} == {'a': 1.0} }}",
    "{{ 'a' in 'abc' }} {{ 1 in l }} {{ 'b' in d }} {{ 'z' not in d }} {{ not 1 in l }} {{ none in [none] }} {{ true in [1] }} {{ 'x' in missing }}",
    "{{ 0 or 'x' }} {{ 1 and 'y' }} {{ e or el or 'z' }} {{ not e }} {{ not not n }} {{ e and missing.x }} {{ t or missing.x }}", "{{ missing == missing2 }} {{ missing == none }} {{ missing != 1 }}",
    # Tests.
    "{{ s is string }} {{ n is string }} {{ n is number }} {{ t is number }} {{ t is integer }} {{ n is integer }} {{ f is float }} {{ t is boolean }} {{ nul is none }} {{ missing is none }}",
    "{{ d is mapping }} {{ l is mapping }} {{ l is iterable }} {{ s is iterable }} {{ n is iterable }} {{ missing is iterable }} {{ l is sequence }} {{ d is sequence }} {{ n is sequence }} {{ s is sequence }}",
    "{{ missing is defined }} {{ nul is defined }} {{ s is not defined }} {{ d.zz is undefined }} {{ t is true }} {{ 1 is true }} {{ z is false }} {{ false is false }}",
    "{{ 3 is odd }} {{ 4 is even }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }} {{ 1 is in l }} {{ 1 is eq 1 }} {{ 1 is equalto(2) }} {{ 2 is gt 1 }} {{ 2 is ne 2 }} {{ 'abc' is lower }} {{ 'ABC' is upper }} {{ range is callable }}",
    "{{ not s is string }} {{ s is not string and t }} {{ (1 is odd) if t else 2 }} {{ (l | length) is odd }}", "{{ 1 is in [1, 2] and 3 is not in [1] }}",
    # Subscripts.
    "{{ l[0] }} {{ l[-1] }} {{ l[9] }} {{ l[1:] }} {{ l[:-1] }} {{ l[::-1] }} {{ l[::2] }} {{ l[5:] }} {{ l[-9:2] }} {{ l[2:0:-1] }} {{ l[:] }}",
    "{{ s[0] }} {{ s[-1] }} {{ u[1] }} {{ u[1:5] }} {{ u[::-1] }} {{ u[-1] }} {{ s[::3] }} {{ s[99:] }} {{ s[3:1] }} {{ u[4::2] }} {{ s[-100:100:1] }}",
    "{{ d.b }} {{ d['b'] }} {{ d.a[1].x }} {{ d['a'][0] }} {{ d.zz }} {{ d['zz'] }} {{ nest.k.v }} {{ nest['items'] }} {{ l.0 }} {{ nest.k['v'][0] }}", "{{ (1, 2)[1] }} {{ 'abc'[1] }} {{ {'a': 1}['a'] }} {{ {1: 'x'}[1] }} {{ {1: 'x'}[true] }} {{ l[t] }} {{ s.nothing }} {{ l['x'] }}",
    "{{ l[::9223372036854775807] }} {{ l[2::-9223372036854775807] }} {{ l[-9223372036854775807:9223372036854775807] }}",
    # Strings and repr.
    "{{ q }} {{ [q] }} {{ {'k': q} }} {{ ['a\"b', \"a'b\", \"a'b\\\"c\"] }} {{ [u] }} {{ ['\\u200b\\xad\\u0378\\U000e0001'] }}", "{{ d }} {{ d | string }} {{ [none, true, 1.5, 'x', (1,), {}] }} {{ [1e16, 0.1, 1e-5] }}",
    "{{ s.upper() }} {{ s.lower() }} {{ s.title() }} {{ 'hELLO wORLD'.capitalize() }} {{ u.upper() }} {{ u.title() }} {{ 'ß'.capitalize() }} {{ \"they're 3rd\".title() }}",
    "[{{ sp.strip() }}] [{{ sp.lstrip() }}] [{{ sp.rstrip() }}] [{{ 'xxaxx'.strip('x') }}] [{{ 'xyaxy'.lstrip('yx') }}] [{{ 'aé中'.rstrip('中é') }}] [{{ sp | trim }}] [{{ 'xax' | trim('x') }}] [{{ n | trim }}] [{{ sp.strip(none) }}]",
    "{{ 'a,b,,c'.split(',') }} {{ ' a  b c '.split() }} {{ 'a b c'.split(' ', 1) }} {{ 'abc'.split('x') }} {{ ''.split() }} {{ ''.split(',') }} {{ 'a-b-c'.rsplit('-', 1) }} {{ 'a b  c'.split(none, 1) }} {{ 'aXXbXXc'.split('XX')[-1] }} {{ 'aaa'.rsplit('aa') }}",
    "{{ s.startswith('He') }} {{ s.endswith(('x', 'ld')) }} {{ s.startswith('') }} {{ s.replace('l', 'LL') }} {{ s.replace('l', '', 1) }} {{ 'ab'.replace('', '-') }} {{ u.replace('é', 'e') }} {{ s | replace('o', '0') }} {{ s | replace('l', 'x', 2) }}",
    "{{ s.find('o') }} {{ s.rfind('o') }} {{ s.find('zz') }} {{ u.find('文') }} {{ s.count('l') }} {{ ''.count('') }} {{ 'aaa'.count('aa') }} {{ '-'.join(['a', 'b']) }} {{ lines.splitlines() }} {{ '12'.isdigit() }} {{ 'a=b=c'.partition('=') }} {{ 'a=b=c'.rpartition('=') }} {{ 'abc'.partition('x') }}",
    "{{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.txt'.removesuffix('.txt') }} {{ 'x'.removesuffix('') }}", "{% for c in 'aé中' %}<{{ c }}>{% endfor %}",
    # Filters.
    "{{ l | length }} {{ s | length }} {{ u | length }} {{ d | count }} {{ missing | length }} {{ l | join(', ') }} {{ l | join }} {{ people | join('-', attribute='name') }} {{ 'abc' | join('.') }} {{ [1, none, 'x'] | join('|') }}",
    "{{ missing | default('x') }} {{ e | default('x') }} {{ e | default('x', true) }} {{ nul | d('y') }} {{ nul | default('y', boolean=True) }} {{ missing | default }}|", "{{ l | first }} {{ l | last }} {{ s | first }} {{ el | first }} {{ l | sort }} {{ ls | sort }} {{ ls | sort(case_sensitive=true) }} {{ l | sort(reverse=true) }} {{ people | sort(attribute='age') | map(attribute='name') | list }}",
    "{{ d | dictsort }} {{ {'B': 1, 'a': 2} | dictsort }} {{ {'x': 2, 'y': 1} | dictsort(by='value') }} {{ {'x': 2, 'y': 1} | dictsort(false, 'key', true) }}", "{{ l | reverse | list }} {{ s | reverse }} {{ l | max }} {{ l | min }} {{ ls | max }} {{ l | sum }} {{ people | sum(attribute='age') }} {{ l | sum(start=10) }} {{ [1, 1, 2] | unique | list }} {{ ['a', 'A'] | unique | list }}",
    "{{ ls | map('upper') | join }} {{ people | map(attribute='name') | list }} {{ people | map(attribute='zz', default='?') | list }} {{ l | map('string') | list }} {{ ['a', 'b'] | map('replace', 'a', 'x') | list }}",
    "{{ l | select('odd') | list }} {{ l | reject('equalto', 3) | list }} {{ [0, 1, ''] | select | list }} {{ people | selectattr('age', 'equalto', 30) | map(attribute='name') | list }} {{ people | rejectattr('age', 'gt', 26) | list }} {{ people | selectattr('name') | list | length }}",
    "{{ '42' | int }} {{ 'x' | int }} {{ 'x' | int(5) }} {{ 3.9 | int }} {{ '3.9' | int }} {{ ' 12 ' | int }} {{ t | int }} {{ '2.5' | float }} {{ 'x' | float }} {{ 3 | float }} {{ -3.5 | int }}", "{{ s | upper }} {{ s | lower }} {{ s | title }} {{ 'hello world' | capitalize }} {{ n | upper }} {{ s | safe }} {{ 1.50 | string }} {{ u | list }}",
    "{{ 'a\nb\n\nc' | indent }} {{ 'a\nb' | indent(2, true) }} {{ 'a\n\nb' | indent(2, blank=true) }} {{ 'a\nb' | indent('> ') }} {{ 'a\n' | indent }}|", "{{ d | items | list }} {{ d.items() | list }} {{ d.keys() | list }} {{ d.values() | list }} {{ d.get('b') }} {{ d.get('zz') }} {{ d.get('zz', 3) }} {% for k, v in d | items %}{{ k }}={{ v }};{% endfor %}{{ missing | items | list }}",
    "{{ l | map('string') | map('length') | sum }}", "{{ [3, 1] | index if false else 0 }}", "{{ [3, 1, 3].index(1) }} {{ [3, 1, 3].count(3) }}",
    # tojson.
    "{{ d | tojson }} {{ q | tojson }} {{ u | tojson }} {{ u | tojson(ensure_ascii=true) }} {{ [1.0, 1e16, 1e-7, 0.1, -0.0, 100.0, 1e22] | tojson }} {{ l | tojson }} {{ ed | tojson }} {{ el | tojson }} {{ (1, 2) | tojson }}",
    "{{ d | tojson(indent=2) }}\n{{ [[], {}, [1]] | tojson(indent=4) }} {{ d | tojson(indent='\t') }} {{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }} {{ d | tojson(separators=(',', ':')) }} {{ {1: 2, true: 3, none: 4, 1.5: 5} | tojson }} {{ d | tojson(true, 1) }}",
    "{{ '\u007f\u0080\u2028/<>&' | tojson }} {{ '\u007f🙂' | tojson(ensure_ascii=True) }}", "{{ messages | tojson }}", "{{ tools | tojson if tools else 'none' }}",
    # Statements.
    "{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }} {{ loop.previtem }}<{{ x }}>{{ loop.nextitem }};{% endfor %}",
    "{% for x in el %}a{% else %}empty{% endfor %}{% for x in missing %}a{% else %}none{% endfor %}{% for x in l if x > 1 %}{{ loop.index }}:{{ x }} {% endfor %}{% for x in l if x > 9 %}{% else %}no{% endfor %}",
    "{% for a, b in [(1, 2), [3, 4]] %}{{ a }}{{ b }} {% endfor %}{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}{% for k in d %}{{ k }}{% endfor %}", "{% for x in range(5) %}{% if x == 1 %}{% continue %}{% endif %}{% if x == 3 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for i in range(3) %}{% for j in range(2) %}{{ i }}{{ j }}{{ loop.index }} {% endfor %}{{ loop.index }}{% endfor %}", "{{ range(3) | list }} {{ range(1, 6, 2) | list }} {{ range(3, 0, -1) | list }} {{ range(0) | list }}", "{% for x in l %}{{ loop.cycle('odd', 'even') }} {% endfor %}",
    "{% for x in [[1, [2, 3]], [4, []]] recursive %}{% if x is iterable %}({{ loop(x) }}){% else %}{{ x }}@{{ loop.depth }}{% endif %}{% endfor %}",
    "{% set x = 1 %}{% for i in l %}{% set x = i %}{{ x }}{% endfor %}{{ x }}", "{% set x = 1 %}{% if t %}{% set x = 2 %}{% endif %}{{ x }}", "{% for i in l %}{{ y }}{% set y = i %}{{ y }} {% endfor %}{{ y }}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (c, d2) = [3, 4] %}{{ c }}{{ d2 }}",
    "{% set ns = namespace(a=1, b='x') %}{% for i in l %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns.zz }}{{ ns }}{% set ns.new = [1] %}{{ ns.new }}", "{% set ns = namespace({'a': 1}) %}{{ ns.a }}{{ ns['a'] }}", "{% set x %}a{{ n }}b{% endset %}[{{ x }}]{% set y | upper %}abc{% endset %}{{ y }}{% set z | replace('a', 'b') | upper %}aa{% endset %}{{ z }}",
    "{% macro m(a, b=2, c=b) %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(a=5, c=6) }}{{ m() }}{{ m(1, 2, 3) | upper }}", "{% set x = 'outer' %}{% macro m() %}{{ x }}{% set x = 'in' %}{{ x }}{% endmacro %}{{ m() }}{{ x }}", "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}",
    "{% macro wrap(tag) %}<{{ tag }}>{{ caller('arg') }}</{{ tag }}>{% endmacro %}{% call(x) wrap('b') %}in {{ x }}{% endcall %}", "{% for i in l %}{% macro mm() %}{{ i }}{% endmacro %}{{ mm() }}{% endfor %}", "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}", "{% macro m() %}{{ s }}{{ loop is defined }}{% endmacro %}{% for i in [1] %}{{ m() }}{% endfor %}",
    "{% filter upper %}abc {{ n }}{% endfilter %} {% filter replace('a', 'b') | upper %}aa{% endfilter %}", "{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a }}", "{% with a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}{% endwith %}", "{% generation %}abc{% set gg = 1 %}{% endgeneration %}{{ gg }}",
    "{% if n == 1 %}a{% elif n == 7 %}b{% elif t %}c{% else %}d{% endif %}{% if z %}{% else %}e{% endif %}{% if t, %}x{% endif %}", "{% print n, s %}{% if t: %}x{% endif %}", "{{ strftime_now('%Y-%m-%d %H:%M %d %b %B') }} {{ strftime_now('') }}|", "{{ dict(a=1, b='x') }} {{ dict(d, z=1) | length }}",
    "{{ 'a' if missing is defined else 'b' }} {{ missing }} {{ (missing) ~ 'x' }} [{{ d.zz }}] {{ missing | string }} {{ [missing] }} {{ missing | upper }}", "{% set x = l | map('string') %}{% if x %}yes{% endif %}", "{{ {'a': 1, 'b': 2, 'a': 3} }} {{ {'x': n, n: 'y'} }}", "{% for m in messages %}{{ m.role }}: {{ m['content'] }}{% if m.tool_calls %}{{ m.tool_calls[0].function | tojson }}{% endif %}\n{% endfor %}", "{{ messages[1:] | length }} {{ messages[0].get('content', '') }} {{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | first }}",
    # Failures: both must refuse.
    "{{ missing.x }}", "{{ missing['x'] }}", "{{ missing + 1 }}", "{{ 1 + 'a' }}", "{{ 'a' + 1 }}", "{{ none + 'a' }}", "{{ missing() }}", "{{ n() }}", "{{ n.x.y }}", "{% for x in n %}{% endfor %}", "{% for x in none %}{% endfor %}", "{{ 1 < 'a' }}", "{{ 1 / 0 }}", "{{ 1 % 0 }}", "{{ n | length }}", "{{ 1 in 'abc' }}", "{{ 1 in n }}", "{{ missing | tojson }}", "{{ range(1000000) }}",
    "{{ raise_exception('no ' ~ n) }}", "{% for a, b in [1] %}{% endfor %}", "{% for a, b in [(1, 2, 3)] %}{% endfor %}", "{% set n.x = 1 %}", "{{ 'a'.replace('b') }}", "{{ s.nomethod() }}", "{{ l.append(1) }}", "{{ d.update({}) }}", "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{% endmacro %}{{ m(zz=2) }}", "{{ x | nofilter }}", "{{ x is notest }}",
    "{{ 1 is odd if t else 2 }}", "{% if t %}", "{% endif %}", "{% for x in l %}", "{{ 1 + }}", "{{ (1 }}", "{{ 1 ) }}", "{{ 'abc }}", "{{ a b }}", "{% if %}x{% endif %}", "{% set 1 = 2 %}", "{{", "{%", "{# x", "{% raw %}x", "{{ [1, 2 }}", "{{ {'a' 1} }}", "{% nothing %}", "{{ 1 | }}", "{% break %}", "{{ l[1:2:0] }}", "{{ 'a'[::0] }}", "{{ $ }}", "{{ a.'b' }}", "{% macro %}{% endmacro %}", "{% macro m(a=1, b) %}{% endmacro %}", "{{ m(a=1, 2) }}", "{{ ''.split('') }}",
]
