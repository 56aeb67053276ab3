/* The part of CPython's stable ABI (PEP 384, as of 3.11) that this module uses, declared here because a machine with Python alone
 * has no Python.h. tests/unit/core/test_native_build.py compiles it beside Python's own headers, where those are.
 */
#ifndef HOURMARK_PYTHON_ABI_H
#define HOURMARK_PYTHON_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef HOURMARK_WITH_PYTHON_H
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#else
typedef ptrdiff_t Py_ssize_t; /* what ssize_t is wherever CPython runs */
typedef struct _object {
    Py_ssize_t ob_refcnt;
    void *ob_type;
} PyObject;
typedef PyObject *(*PyCFunction)(PyObject *, PyObject *);
typedef struct PyMethodDef {
    const char *ml_name;
    PyCFunction ml_meth;
    int ml_flags;
    const char *ml_doc;
} PyMethodDef;
typedef struct {
    PyObject ob_base;
    PyObject *(*m_init)(void);
    Py_ssize_t m_index;
    PyObject *m_copy;
} PyModuleDef_Base;
typedef struct PyModuleDef {
    PyModuleDef_Base m_base;
    const char *m_name;
    const char *m_doc;
    Py_ssize_t m_size;
    PyMethodDef *m_methods;
    void *m_slots, *m_traverse, *m_clear, *m_free;
} PyModuleDef;
typedef struct _ts PyThreadState;
typedef void (*PyCapsule_Destructor)(PyObject *);
#define PyModuleDef_HEAD_INIT {{1, NULL}, NULL, 0, NULL}
#define METH_FASTCALL 0x0080
#define Py_None (&_Py_NoneStruct)
#define PyMODINIT_FUNC __attribute__((visibility("default"))) PyObject *
#define Py_BEGIN_ALLOW_THREADS { PyThreadState *_save = PyEval_SaveThread();
#define Py_END_ALLOW_THREADS PyEval_RestoreThread(_save); }
#define PyModule_Create(definition) PyModule_Create2(definition, 3)

typedef struct { /* in the stable ABI since 3.11 */
    void *buf;
    PyObject *obj;
    Py_ssize_t len, itemsize;
    int readonly, ndim;
    char *format;
    Py_ssize_t *shape, *strides, *suboffsets;
    void *internal;
} Py_buffer;
#define PyBUF_SIMPLE 0

extern PyObject _Py_NoneStruct;
extern PyObject *PyExc_ValueError, *PyExc_TypeError;
#endif

PyObject *PyModule_Create2(PyModuleDef *, int);
void Py_IncRef(PyObject *);
void Py_DecRef(PyObject *);
void PyErr_SetString(PyObject *, const char *);
PyObject *PyErr_NoMemory(void);
PyObject *PyErr_Occurred(void);
PyObject *PyBytes_FromStringAndSize(const char *, Py_ssize_t);
int PyBytes_AsStringAndSize(PyObject *, char **, Py_ssize_t *);
int PyObject_GetBuffer(PyObject *, Py_buffer *, int);
void PyBuffer_Release(Py_buffer *);
PyObject *PyDict_New(void);
int PyDict_SetItem(PyObject *, PyObject *, PyObject *);
PyObject *PyList_New(Py_ssize_t);
int PyList_Append(PyObject *, PyObject *);
PyObject *PyTuple_New(Py_ssize_t);
int PyTuple_SetItem(PyObject *, Py_ssize_t, PyObject *);
PyObject *PyTuple_GetItem(PyObject *, Py_ssize_t);
Py_ssize_t PyTuple_Size(PyObject *);
PyObject *PyLong_FromLongLong(long long);
PyObject *PyLong_FromUnsignedLongLong(unsigned long long);
long long PyLong_AsLongLong(PyObject *);
PyObject *(PyCFunction_NewEx)(PyMethodDef *, PyObject *, PyObject *);
PyObject *PyObject_CallFunctionObjArgs(PyObject *, ...);
PyObject *PyUnicode_InternFromString(const char *);
PyObject *PyCapsule_New(void *, const char *, PyCapsule_Destructor);
void *PyCapsule_GetPointer(PyObject *, const char *);
PyThreadState *PyEval_SaveThread(void);
void PyEval_RestoreThread(PyThreadState *);

#endif
