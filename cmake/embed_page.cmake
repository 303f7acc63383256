# cmake -DFOLDER=... -DFILES="a.css b.js" -DOUTPUT=page_files.cc -P embed_page.cmake
#
# Writes the files of the web page as one C++ source, each as a raw string: as fast to compile as to copy. Text only.
string(REPLACE " " ";" names "${FILES}")
set(code "#include \"server/page.h\"\n\nnamespace gapless {\n\nnamespace {\n\nconstexpr PageFile kFiles[] = {\n")
foreach(name IN LISTS names)
  file(READ "${FOLDER}/${name}" text)
  file(SHA256 "${FOLDER}/${name}" hash)
  string(SUBSTRING "${hash}" 0 16 tag)
  string(APPEND code "    {\"${name}\", R\"\"(\"${tag}\")\"\", R\"gapless_page(${text})gapless_page\"},\n")
endforeach()
string(APPEND code "};\n\n}  // namespace\n\nstd::span<const PageFile> page_files() {\n  return kFiles;\n}\n\n}  // namespace gapless\n")
file(WRITE "${OUTPUT}" "${code}")
