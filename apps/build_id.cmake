# cmake -DSOURCES=DIR -DBUILD=TEXT -DFILE=FILE -P apps/build_id.cmake: writes the id of this build, a hash of the
# program's sources and of the compiler options (BUILD), if it has changed.
cmake_minimum_required(VERSION 3.25)
set(all "${BUILD}")
foreach(folder kernels engine comm data models apps)
  file(GLOB_RECURSE files LIST_DIRECTORIES false RELATIVE ${SOURCES} ${SOURCES}/${folder}/*.cc ${SOURCES}/${folder}/*.h
       ${SOURCES}/${folder}/*.cu ${SOURCES}/${folder}/*.cuh)
  foreach(file ${files})
    file(SHA256 ${SOURCES}/${file} hash)
    string(APPEND all "${file} ${hash}\n")
  endforeach()
endforeach()
string(SHA256 id "${all}")
string(SUBSTRING ${id} 0 12 id)
file(CONFIGURE OUTPUT ${FILE} @ONLY CONTENT
     "namespace isobar {\nextern const char kBuildId[];\nconst char kBuildId[] = \"@id@\";\n}\n")
