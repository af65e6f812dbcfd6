# Run as a script: -DINPUT=file -DOUTPUT=file.cpp -DNAME=symbol. Writes a C++ source that defines, in halfbyte::tools,
# std::string_view NAME: the file's bytes. In pieces, because compilers limit the length of one literal.
file(READ ${INPUT} text)
string(LENGTH "${text}" length)
set(out "#include <string_view>\n\nnamespace halfbyte::tools {\nextern const std::string_view ${NAME};\nconst std::string_view ${NAME} =\n")
set(at 0)
while(at LESS length)
  string(SUBSTRING "${text}" ${at} 8000 piece)
  string(APPEND out "    R\"~~~~(${piece})~~~~\"\n")
  math(EXPR at "${at} + 8000")
endwhile()
string(APPEND out "    ;\n}  // namespace halfbyte::tools\n")
file(WRITE ${OUTPUT} "${out}")
